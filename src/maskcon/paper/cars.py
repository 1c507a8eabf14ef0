"""Appendix A: the coarse classes of Cars196, as names or as one image per model."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.download import Progress
from maskcon._utils.errors import UsageError
from maskcon.data.builtin import cars196
from maskcon.data.builtin.cars196 import FINE_NAMES
from maskcon.data.decoding import UndecodableError, decode, decompression_bombs_refused
from maskcon.data.folder_layout import Layout
from maskcon.paper.runs import Drawn, as_csv, write_figure
from maskcon.report.style import (
    COLOURS,
    INK,
    MARKERS,
    PALE,
    SMALL_POINTS,
    SMALLEST_POINTS,
    Plate,
    as_pixels,
    shorten,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


EXAMPLE_SIDE = 160  # pixels of an image on the sheet of cars
SHEET_INCHES = 11.0  # a page on its side
COLUMNS = 5
LINE_INCHES = 0.118
TILES_ACROSS = 14
LINE_LETTERS = 42
CAPTION_LETTERS, CAPTION_LINES, CAPTION_POINTS = 21, 3, 4.2  # of the fine class; the coarse one stands below


def grouped(names: Sequence[str], coarse_of: Sequence[int]) -> dict[int, list[int]]:
    """Return coarse class -> its fine classes, both ascending; coarse classes without any are left out.

    >>> grouped("xyz", (1, 0, 1))
    {0: [1], 1: [0, 2]}
    """
    if len(names) != len(coarse_of) or not names:
        raise UsageError(f"{len(names)} names and {len(coarse_of)} coarse classes do not go together")
    return {
        coarse: [fine for fine, its in enumerate(coarse_of) if its == coarse]
        for coarse in sorted(set(coarse_of))
    }


def class_columns(
    names: Sequence[str],
    coarse_of: Sequence[int],
    coarse_names: Sequence[str],
    *,
    title: str = "",
    caption: str = "",
) -> Figure:
    """List the names of all fine classes in columns, under the name, count and colour of their coarse class."""
    lines: list[tuple[int, str, bool]] = []  # coarse class, words, is a heading
    for coarse, fines in grouped(names, coarse_of).items():
        lines.append((coarse, f"{coarse}: {coarse_names[coarse]} ({len(fines)})", True))
        for fine in fines:
            first, *rest = textwrap.wrap(names[fine], LINE_LETTERS)
            lines += [(coarse, first, False), *((coarse, f"    {words}", False) for words in rest)]
    height = -(-len(lines) // COLUMNS)
    while True:  # a heading never stands last in a column: give it one line more
        parts = [lines[start : start + height] for start in range(0, len(lines), height)]
        if not any(part[-1][2] for part in parts if part):
            break
        height += 1
    plate, head = _sheet(title, LINE_INCHES * (height + 0.5), caption)
    wide = (SHEET_INCHES - 0.1) / COLUMNS
    for column, part in enumerate(parts):
        left = 0.1 + column * wide
        bars = plate.axes(left=left, top=head, width=0.09, height=LINE_INCHES * height)
        bars.set_xlim(0, 1)
        bars.set_ylim(height, 0)
        for row, (coarse, words, is_heading) in enumerate(part):
            middle = head + LINE_INCHES * (row + 0.5)
            colour = COLOURS[coarse % len(COLOURS)]
            if is_heading:
                bars.plot([0.5], [row + 0.5], marker=MARKERS[coarse % len(MARKERS)], color=colour, markersize=6,
                          markeredgewidth=0, clip_on=False)  # fmt: skip
                plate.write(left + 0.14, middle, words, size=SMALL_POINTS, weight="bold")
            else:
                bars.fill_between([0.3, 0.7], row, row + 1, color=colour, linewidth=0)
                plate.write(left + 0.14, middle, words, size=SMALLEST_POINTS - 0.5)
    return plate.figure


def example_sheet(
    pictures: Mapping[int, NDArray[np.uint8]],
    names: Sequence[str],
    coarse_of: Sequence[int],
    coarse_names: Sequence[str],
    *,
    title: str = "",
    caption: str = "",
) -> Figure:
    """Draw an image [C, H, W] of each fine class, captioned fine / coarse, framed in the colour of the coarse class.

    Classes come by coarse class; one without an image is an empty frame that says so.
    """
    ordered = [fine for fines in grouped(names, coarse_of).values() for fine in fines]
    side = (SHEET_INCHES - 0.1) / TILES_ACROSS
    step = side * 0.8 + 0.077 * (CAPTION_LINES + 1.4)  # images of cars lie on their side
    rows = -(-len(ordered) // TILES_ACROSS)
    plate, head = _sheet(title, rows * step, caption)
    for place, fine in enumerate(ordered):
        row, column = divmod(place, TILES_ACROSS)
        left, top = 0.05 + column * side, head + row * step
        coarse = coarse_of[fine]
        axes = plate.axes(left=left + 0.03, top=top, width=side - 0.06, height=side * 0.8 - 0.03)
        axes.set_gid(f"class-{fine}")
        axes.set_facecolor("black" if fine in pictures else "#f4f4f4")
        if fine in pictures:
            axes.imshow(as_pixels(pictures[fine]), aspect="equal", interpolation="antialiased")
            axes.set_anchor("C")
        else:
            axes.text(0.5, 0.5, "no image", ha="center", va="center", fontsize=CAPTION_POINTS, color=PALE,
                      transform=axes.transAxes)  # fmt: skip
        for spine in axes.spines.values():
            spine.set(visible=True, color=COLOURS[coarse % len(COLOURS)], linewidth=1.6)
        words = textwrap.wrap(names[fine], CAPTION_LETTERS)
        if len(words) > CAPTION_LINES:
            words = [
                *words[: CAPTION_LINES - 1],
                shorten(" ".join(words[CAPTION_LINES - 1 :]), CAPTION_LETTERS),
            ]
        for line, text in enumerate((*words, f"/ {coarse_names[coarse]}")):
            plate.write(left + side / 2, top + side * 0.8 + 0.03 + 0.075 * line, text, size=CAPTION_POINTS,
                        ha="center", color=INK)  # fmt: skip
    return plate.figure


def _sheet(title: str, height: float, caption: str) -> tuple[Plate, float]:
    """Create a titled sheet; returns it and where its content of that height begins."""
    head = 0.3 if title else 0.08
    plate = Plate(width=SHEET_INCHES, height=head + height, caption=caption)
    plate.write(0.08, 0.16, title, size=SMALL_POINTS + 2, weight="bold")
    return plate, head


def draw(
    root: Path,
    stem: Path,
    absent: Sequence[str],
    *,
    download: bool,
    progress: Progress | None,  # noqa: ARG001
) -> Drawn:
    """Draw an image of each model by coarse class, or the names alone where the dataset is absent."""
    coarse_of, names = cars196.grouping("paper").coarse_of, cars196.COARSE_NAMES
    counts = ", ".join(f"{name} {coarse_of.count(coarse)}" for coarse, name in enumerate(names))
    rows = [
        (number + 1, name, names[coarse_of[number]], coarse_of[number])
        for number, name in enumerate(FINE_NAMES)
    ]
    numbers = as_csv(("class", "model", "coarse_class", "coarse"), rows)
    title = f"Stanford Cars: {len(FINE_NAMES)} models in {len(names)} coarse classes"
    if absent:
        caption = "Names and coarse classes (the paper's); the images of the dataset are not here."
        figure = class_columns(FINE_NAMES, coarse_of, names, title=title, caption=caption)
        text = f"Cars196 is not here; drawn are its names ({counts}). Missing: {'; '.join(absent)}"
        return write_figure(figure, stem, "csv", numbers), text
    images = example_images(cars196.cars_listing(root, download=download))
    caption = f"The first training image of each model, captioned model / coarse class. Models: {counts}."
    figure = example_sheet(images, FINE_NAMES, coarse_of, names, title=title, caption=caption)
    return write_figure(figure, stem, "csv", numbers), counts


def example_images(listing: Layout, side: int = EXAMPLE_SIDE) -> dict[int, NDArray[np.uint8]]:
    """Decode the first readable training image of each fine class, shrunk to fit side x side; [3, H, W]."""
    found: dict[int, NDArray[np.uint8]] = {}
    with decompression_bombs_refused():
        for listed in sorted(listing.files, key=lambda listed: listed.path):
            fine = FINE_NAMES.index(listed.fine or "")
            if fine not in found and not listed.is_test:
                with contextlib.suppress(UndecodableError):  # the next one will do
                    found[fine] = decode(listing.root / listed.path, side, 3)
    return found

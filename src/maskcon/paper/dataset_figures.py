"""Appendix A: images per product of SOP, and one image per model of Cars196 with its coarse class."""

from __future__ import annotations

import contextlib
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.download import Progress
from maskcon.data.builtin import cars196, sop
from maskcon.data.decoding import UndecodableError, decode, decompression_bombs_refused
from maskcon.data.folder_layout import Layout
from maskcon.paper.runs import Drawn, as_csv, write_figure
from maskcon.report.style import (
    COLOURS,
    COLUMN_INCHES,
    PALE,
    SMALL_POINTS,
    SMALLEST_POINTS,
    as_pixels,
    figure_style,
    hide_axes,
    new_figure,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What appendix A says of the two splits: products, images.
PAPER_SPLIT1 = (5_035, 50_646)  # eight images or more; 25,368 to train on and 25,278 to test on
PAPER_SPLIT2 = (1_498, 17_976)  # exactly twelve
SPLIT1_FEWEST, SPLIT2_IMAGES = 8, 12
LOOKS = {  # label -> colour, hatch
    "not used": (COLOURS[6], ""),
    "in split 1": (COLOURS[5], "//"),
    "in splits 1 and 2": (COLOURS[1], "xx"),
}

EXAMPLE_SIDE = 160  # pixels of an image on the sheet of cars
SHEET_INCHES = 11.0  # a page on its side
TILES_ACROSS = 14
NAME_LETTERS, NAME_POINTS = 21, 4.2


def kind_of(images: int) -> str:
    """Name the splits that use a product with so many images.

    >>> [kind_of(images) for images in (7, 8, 12)]
    ['not used', 'in split 1', 'in splits 1 and 2']
    """
    if images == SPLIT2_IMAGES:
        return "in splits 1 and 2"
    return "in split 1" if images >= SPLIT1_FEWEST else "not used"


def draw_sop(root: Path, stem: Path, *, download: bool, progress: Progress | None) -> Drawn:
    """Draw how many images the products of SOP have, counted in the dataset's own list."""
    products = Counter(sop.product_sizes(root, download=download, progress=progress).values())
    split1 = {size: count for size, count in products.items() if kind_of(size) != "not used"}
    totals = [
        sum(split1.values()),
        sum(size * count for size, count in split1.items()),
        products[SPLIT2_IMAGES],
        SPLIT2_IMAGES * products[SPLIT2_IMAGES],
    ]
    published = [*PAPER_SPLIT1, *PAPER_SPLIT2]
    shown, printed = ([f"{number:,}" for number in numbers] for numbers in (totals, published))
    same = "as the paper says" if totals == published else f"the paper says {', '.join(printed)}"
    text = (
        f"8 images or more: {shown[0]} products, {shown[1]} images; exactly 12: {shown[2]} products, {shown[3]} images "
        f"({same})"
    )
    caption = f"Counted in the dataset's own list: {sum(products.values()):,} products. {text}."
    rows = [(size, count, size * count) for size, count in sorted(products.items())]
    numbers = as_csv(("images_of_a_product", "products", "images"), rows)
    return write_figure(size_histogram(products, caption=caption), stem, "csv", numbers), text


@figure_style()
def size_histogram(products: Mapping[int, int], *, caption: str = "") -> Figure:
    """Draw the number of products by how many images they have; `products`: images -> products."""
    figure = new_figure(COLUMN_INCHES, 2.5, caption)
    axes = figure.add_subplot(
        title="Stanford Online Products", xlabel="images of a product", ylabel="products"
    )
    axes.grid(False, axis="x")
    for kind, (colour, hatch) in LOOKS.items():
        sizes = [size for size in sorted(products) if kind_of(size) == kind]
        counts = [products[size] for size in sizes]
        look: dict[str, Any] = {"color": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0}
        bars = axes.bar(sizes, counts, width=0.8, label=kind, **look)
        axes.bar_label(bars, fmt="{:,.0f}", padding=2, fontsize=SMALLEST_POINTS - 1)
    axes.set_xticks(range(min(products), max(products) + 1))
    axes.tick_params(labelsize=SMALL_POINTS)
    figure.legend(fontsize=SMALLEST_POINTS, loc="outside upper right", ncols=3)
    return figure


def draw_cars(root: Path, stem: Path, *, download: bool, progress: Progress | None) -> Drawn:  # noqa: ARG001
    """Draw one image per model of Cars196, by coarse class."""
    images = example_images(cars196.cars_listing(root, download=download))
    models, names, coarse_of = cars196.FINE_NAMES, cars196.COARSE_NAMES, cars196.grouping("paper").coarse_of
    counts = ", ".join(f"{name} {coarse_of.count(coarse)}" for coarse, name in enumerate(names))
    caption = (
        f"Stanford Cars: {len(models)} models in {len(names)} coarse classes. The first training image of each "
        f"model, captioned model / coarse class. Models: {counts}."
    )
    rows = [
        (number, model, names[coarse], coarse)
        for number, (model, coarse) in enumerate(zip(models, coarse_of, strict=True), start=1)
    ]
    numbers = as_csv(("class", "model", "coarse_class", "coarse"), rows)
    figure = example_sheet(images, models, coarse_of, names, caption=caption)
    return write_figure(figure, stem, "csv", numbers), counts


def example_images(listing: Layout, side: int = EXAMPLE_SIDE) -> dict[int, NDArray[np.uint8]]:
    """Decode the first readable training image of each fine class, shrunk to fit side x side; [3, H, W]."""
    found: dict[int, NDArray[np.uint8]] = {}
    with decompression_bombs_refused():
        for listed in sorted(listing.files, key=lambda listed: listed.path):
            fine = cars196.FINE_NAMES.index(listed.fine or "")
            if fine not in found and not listed.is_test:
                with contextlib.suppress(UndecodableError):  # the next one will do
                    found[fine] = decode(listing.root / listed.path, side, 3)
    return found


@figure_style()
def example_sheet(
    images: Mapping[int, NDArray[np.uint8]],
    names: Sequence[str],
    coarse_of: Sequence[int],
    coarse_names: Sequence[str],
    *,
    caption: str = "",
) -> Figure:
    """Draw an image [C, H, W] of each fine class, captioned fine / coarse, framed in the colour of the coarse class.

    Classes come by coarse class; one without an image is an empty frame that says so.
    """
    ordered = sorted(range(len(names)), key=lambda fine: (coarse_of[fine], fine))
    rows = -(-len(ordered) // TILES_ACROSS)
    figure = new_figure(SHEET_INCHES, rows * SHEET_INCHES / TILES_ACROSS, caption)
    for place, fine in enumerate(ordered, start=1):
        axes = figure.add_subplot(rows, TILES_ACROSS, place)
        hide_axes(axes)
        coarse = coarse_of[fine]
        if fine in images:
            axes.imshow(as_pixels(images[fine]), interpolation="antialiased")
        else:
            axes.text(0.5, 0.5, "no image", ha="center", va="center", size=NAME_POINTS, color=PALE)
        axes.spines[:].set(visible=True, color=COLOURS[coarse % len(COLOURS)], linewidth=1.6)
        words = f"{textwrap.fill(names[fine], NAME_LETTERS)}\n/ {coarse_names[coarse]}"
        axes.set_xlabel(words, size=NAME_POINTS, labelpad=1.5)
    return figure

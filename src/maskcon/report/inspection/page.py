"""Show an inspection as lines for a terminal, and as one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from PIL import Image

from maskcon._utils.text import counted
from maskcon.report.formats import Cell, Table
from maskcon.report.gallery import image_uri, thumbnail
from maskcon.report.inspection.findings import ClassCount, Inspection, Sizes, Twins
from maskcon.report.inspection.scan import Read
from maskcon.report.page import Section, page_html, part, table_html

CLASSES_PRINTED = 40  # in a terminal
GROUPS_SHOWN = 60  # on the page
IMAGES_SHOWN = 6
FILES_SHOWN = 500
TILE, GAP = 96, 4  # pixels of a strip of images
TILES_PER_ROW = 12
MOST_STRIPS = 60
MISSING = (200, 200, 200)
WARNING = "WARNING: "


def lines(found: Inspection) -> list[str]:
    """Describe an inspection; warnings come at the end, above the choices of training."""
    text = [
        f"{found.name}: {counted(found.train, 'image')} to train on, {found.test:,} to test; "
        f"{len(found.coarse)} coarse classes"
        + (f", {len(found.fine):,} fine" if found.fine else ", no fine labels")
        + f"; {found.size_bytes / 1e6:,.1f} MB",
        f"width {_spread(found.width)} px, height {_spread(found.height)} px",
        f"modes: {_shares(found.modes)}; formats: {_shares(found.formats)}",
        "",
        *_class_lines(found.coarse, "coarse class"),
        *(["", *_class_lines(found.fine, "fine class")] if found.fine else []),
    ]
    text += [f"note: {note}" for note in found.notes]
    text += ["", *(f"{WARNING}{warning}" for warning in found.warnings)]
    if not found.warnings:
        text.append("no warnings")
    if found.choices:
        text += ["", "maskcon train would choose:", *(f"  {choice.line}" for choice in found.choices)]
    return text


def _spread(sizes: Sizes) -> str:
    if sizes.smallest == sizes.largest:
        return str(sizes.smallest)
    return f"{sizes.smallest} to {sizes.largest} (median {sizes.median:g})"


def _shares(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name or 'unknown'} {count:,}" for name, count in counts.items())


def _class_lines(counts: Sequence[ClassCount], heading: str) -> list[str]:
    shown = sorted(counts, key=lambda count: -count.train)[:CLASSES_PRINTED]
    rows = [[count.name, f"{count.train:,}", f"{count.test:,}"] for count in shown]
    more = [f"and {len(counts) - len(shown):,} smaller ones (--json lists all)"]
    return (
        Table([heading, "train", "test"], rows, notes=more if len(counts) > len(shown) else ())
        .text()
        .splitlines()
    )


def page(found: Inspection, read: Read) -> str:
    """Render the page."""
    strips = class_strips(read)
    classes: list[list[str | Cell]] = [
        [
            count.name,
            f"{count.train:,}",
            f"{count.test:,}",
            _images(strips.get(label), f"images of {count.name}"),
        ]
        for label, count in enumerate(found.coarse)
    ]
    ratio = f"The largest has {found.imbalance:.1f} times the training images of the smallest."
    coarse = Table(["class", "train", "test", "images"], classes, notes=[ratio])
    fine = Table(
        ["class", "coarse", "train", "test"],
        [[count.name, count.coarse, f"{count.train:,}", f"{count.test:,}"] for count in found.fine],
        "All classes",
    )
    failures = [f"{path}: {why}" for path, why in list(found.failures.items())[:FILES_SHOWN]]
    if len(found.failures) > FILES_SHOWN:
        failures.append(f"and {len(found.failures) - FILES_SHOWN:,} more")
    sections = [
        Section(
            "warnings", "Warnings", _list(found.warnings, "loud") or part("paragraphs", ["No warnings."])
        ),
        Section(
            "choices", "What maskcon train would choose", _list([choice.line for choice in found.choices])
        ),
        Section("coarse", "Coarse classes", part("prose_table", coarse, len(classes))),
        Section("fine", "Fine classes", table_html(fine) if found.fine else ""),
        Section("identical", "Identical files", _twins(found.twins, read)),
        Section("near", "Near-duplicates", _twins(found.near_twins, read)),
        Section("unreadable", "Unreadable files", _list(failures)),
        Section("notes", "Notes", _list(found.notes)),
    ]
    footer = "Written by maskcon inspect."
    return page_html(f"{found.name}: inspection", lines(found)[:3], sections, footer=footer)


def _list(items: Sequence[str], kind: str = "") -> Markup:
    return part("items", items, kind) if items else Markup()


def _images(strip: Image.Image | None, alt: str) -> Cell:
    return Cell("") if strip is None else Cell(alt, image=image_uri(strip, exact=False))


def _twins(groups: Sequence[Twins], read: Read) -> Markup:
    if not groups:
        return part("paragraphs", ["None."])
    shown = groups[:GROUPS_SHOWN]
    strips = strips_of(read, {place: group.rows[:IMAGES_SHOWN] for place, group in enumerate(shown)})
    rows: list[list[str | Cell]] = []
    for place, group in enumerate(shown):
        marks = ["different labels"] * group.across_labels + ["train and test"] * group.across_parts
        names = [
            f"{name} ({label}, {part})"
            for name, label, part in zip(group.names, group.labels, group.parts, strict=True)
        ]
        more = [f"and {len(names) - IMAGES_SHOWN} more"] if len(names) > IMAGES_SHOWN else []
        files = "; ".join([*names[:IMAGES_SHOWN], *more])
        rows.append([Cell(", ".join(marks), bold=True), _images(strips[place], ""), files])
    left_out = len(groups) - GROUPS_SHOWN
    notes = [f"And {left_out:,} more groups; --json lists all."] if left_out > 0 else []
    return part("prose_table", Table(["found in", "images", "files"], rows, notes=notes), len(rows))


def class_strips(read: Read) -> dict[int, Image.Image]:
    """Draw a strip of images, spread over the class, for each of the 60 largest coarse classes at most."""
    coarse = read.coarse
    counts = np.bincount(coarse, minlength=len(read.labels.coarse_names))
    largest = np.argsort(-counts, kind="stable")[:MOST_STRIPS]
    rows_of = {label: np.flatnonzero(coarse == label) for label in sorted(largest.tolist())}
    return strips_of(
        read,
        {
            label: rows[
                np.linspace(0, len(rows), min(TILES_PER_ROW, len(rows)), endpoint=False).astype(int)
            ].tolist()
            for label, rows in rows_of.items()
        },
    )


def strips_of(read: Read, rows_of: Mapping[int, Sequence[int]]) -> dict[int, Image.Image]:
    """Draw a strip of the images in the rows of each key."""
    images = iter(read.thumbnails([row for rows in rows_of.values() for row in rows], TILE))
    return {key: _strip(list(islice(images, len(rows)))) for key, rows in rows_of.items()}


def _strip(images: Sequence[NDArray[np.uint8] | None]) -> Image.Image:
    """Draw images [3, h, w] side by side, each centred in its tile; grey where missing."""
    row = Image.new("RGB", (max(1, len(images)) * (TILE + GAP) - GAP, TILE), "white")
    for place, image in enumerate(images):
        tile = Image.new("RGB", (TILE, TILE), MISSING) if image is None else thumbnail(image, TILE, "white")
        row.paste(tile, (place * (TILE + GAP), 0))
    return row

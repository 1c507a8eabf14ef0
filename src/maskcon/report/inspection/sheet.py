"""Contact sheet: a row of images per coarse class, as one PNG and as strips for a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from itertools import islice

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from maskcon._utils.text import counted
from maskcon.report.gallery import image_uri
from maskcon.report.inspection.findings import ClassCount, Inspection
from maskcon.report.inspection.scan import Read
from maskcon.report.style import (
    RASTER_DPI,
    SMALL_POINTS,
    SMALLEST_POINTS,
    Plate,
    no_glyph_warnings,
    shorten,
)

TILE, GAP = 96, 4  # pixels
TILES_PER_ROW = 12
MOST_ROWS = 60
NAME_INCHES, NAME_LETTERS = 1.5, 24
GROUND, MISSING = 255, 200  # greys

Strips = Mapping[int, NDArray[np.uint8]]  # coarse class -> its row of images, [TILE, width, 3]


def class_strips(read: Read) -> dict[int, NDArray[np.uint8]]:
    """Draw a row of images of each coarse class, spread over the class; of the 60 largest classes at most."""
    coarse = read.coarse
    counts = np.bincount(coarse, minlength=len(read.labels.coarse_names))
    largest = np.argsort(-counts, kind="stable")[:MOST_ROWS]
    return strips_of(
        read, {label: _spread(np.flatnonzero(coarse == label)) for label in sorted(largest.tolist())}
    )


def strips_of(read: Read, rows_of: Mapping[int, Sequence[int]]) -> dict[int, NDArray[np.uint8]]:
    """Draw a strip of images for each key, of the rows given for it."""
    pictures = iter(read.thumbnails([row for rows in rows_of.values() for row in rows], TILE))
    return {key: strip(list(islice(pictures, len(rows)))) for key, rows in rows_of.items()}


def _spread(rows: NDArray[np.int64]) -> list[int]:
    shown = min(TILES_PER_ROW, len(rows))
    return [int(rows[place * len(rows) // shown]) for place in range(shown)]


def strip(pictures: Sequence[NDArray[np.uint8] | None]) -> NDArray[np.uint8]:
    """Draw images [3, h, w] of at most TILE px side by side, each centred in its tile; grey where missing.

    Small ones are enlarged by whole multiples, so that their pixels stay crisp.
    """
    row = np.full((TILE, max(1, len(pictures)) * (TILE + GAP) - GAP, 3), GROUND, dtype=np.uint8)
    for place, picture in enumerate(pictures):
        left = place * (TILE + GAP)
        if picture is None:
            row[:, left : left + TILE] = MISSING
            continue
        times = TILE // max(picture.shape[1:])
        enlarged = picture.repeat(times, axis=1).repeat(times, axis=2)
        _, height, width = enlarged.shape
        top, inset = (TILE - height) // 2, (TILE - width) // 2
        row[top : top + height, left + inset : left + inset + width] = enlarged.transpose(1, 2, 0)
    return row


def contact_sheet(found: Inspection, strips: Strips) -> bytes:
    """Draw the rows with their class names and counts, as a PNG."""
    width = TILES_PER_ROW * (TILE + GAP)
    step = (TILE + GAP) / RASTER_DPI
    head = 0.3
    left_out = len(found.coarse) - len(strips)
    caption = f"{counted(left_out, 'smaller class', 'smaller classes')} not shown" if left_out else ""
    plate = Plate(
        width=NAME_INCHES + width / RASTER_DPI + 0.1, height=head + len(strips) * step + 0.05, caption=caption
    )
    title = f"{shorten(found.name, 40)}: {counted(found.train + found.test, 'image')}"
    plate.write(0.06, 0.15, title, size=SMALL_POINTS + 1, weight="bold")
    page = np.full((max(1, len(strips)) * (TILE + GAP), width, 3), GROUND, dtype=np.uint8)
    for place, (label, row) in enumerate(strips.items()):
        count: ClassCount = found.coarse[label]
        page[place * (TILE + GAP) : place * (TILE + GAP) + TILE, : row.shape[1]] = row
        middle = head + step * (place + 0.36)
        plate.write(0.06, middle, shorten(count.name, NAME_LETTERS), size=SMALL_POINTS)
        told = f"{count.train:,} train, {count.test:,} test"
        plate.write(0.06, middle + 0.1, told, size=SMALLEST_POINTS - 1)
    axes = plate.axes(left=NAME_INCHES, top=head, width=width / RASTER_DPI, height=len(page) / RASTER_DPI)
    axes.imshow(page, aspect="auto", interpolation="nearest")
    written = BytesIO()
    with no_glyph_warnings():
        plate.figure.savefig(written, format="png", dpi=RASTER_DPI)
    return written.getvalue()


def as_data_uri(row: NDArray[np.uint8]) -> str:
    """Encode a strip as a data URI."""
    return image_uri(Image.fromarray(row), exact=False)

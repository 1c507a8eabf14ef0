"""Strips of thumbnails side by side: some images per coarse class, or the images of a group of duplicates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from maskcon.report.gallery import thumbnail
from maskcon.report.inspection.scan import Read

TILE, GAP = 96, 4  # pixels
TILES_PER_ROW = 12
MOST_ROWS = 60
MISSING = (200, 200, 200)


def class_strips(read: Read) -> dict[int, Image.Image]:
    """Draw a strip of images of each coarse class, spread over the class; of the 60 largest classes at most."""
    coarse = read.coarse
    counts = np.bincount(coarse, minlength=len(read.labels.coarse_names))
    largest = np.argsort(-counts, kind="stable")[:MOST_ROWS]
    return strips_of(
        read, {label: _spread(np.flatnonzero(coarse == label)) for label in sorted(largest.tolist())}
    )


def strips_of(read: Read, rows_of: Mapping[int, Sequence[int]]) -> dict[int, Image.Image]:
    """Draw a strip of images for each key, of the rows given for it."""
    images = iter(read.thumbnails([row for rows in rows_of.values() for row in rows], TILE))
    return {key: strip(list(islice(images, len(rows)))) for key, rows in rows_of.items()}


def strip(images: Sequence[NDArray[np.uint8] | None]) -> Image.Image:
    """Draw images [3, h, w] side by side, each centred in its tile; grey where missing."""
    row = Image.new("RGB", (max(1, len(images)) * (TILE + GAP) - GAP, TILE), "white")
    for place, image in enumerate(images):
        tile = Image.new("RGB", (TILE, TILE), MISSING) if image is None else thumbnail(image, TILE, "white")
        row.paste(tile, (place * (TILE + GAP), 0))
    return row


def _spread(rows: NDArray[np.int64]) -> list[int]:
    shown = min(TILES_PER_ROW, len(rows))
    return [int(rows[place * len(rows) // shown]) for place in range(shown)]

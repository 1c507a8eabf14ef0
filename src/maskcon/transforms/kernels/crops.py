"""The boxes of `maskcon.transforms.boxes.RandomCrop`, sample by sample: most fit at the first of the ten attempts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from maskcon._utils.compilation import entry

Array = Any  # numba's arrays of a fixed type; the signature below names each

ATTEMPTS = 10


@entry("int64[:], int64[:], float32[:, ::1], float64, float64, float64, float64, float64[:, ::1]")
def crop_rows(
    heights: Array,
    widths: Array,
    uniforms: Array,
    least: float,
    most: float,
    narrow: float,
    broad: float,
    placements: Array,
) -> None:
    """heights and widths [B], uniforms [B, draws] -> placements [B, 8], in the order of a `Placement`'s fields.

    least, most: share of the area. narrow, broad: ratio of width to height.
    """
    low, high = math.log(narrow), math.log(broad)
    for row in range(heights.shape[0]):
        tall, wide = float(heights[row]), float(widths[row])
        found = False
        height, width, top, left = 0.0, 0.0, 0.0, 0.0
        for attempt in range(ATTEMPTS):
            area = tall * wide * (least + float(uniforms[row, 2 * attempt]) * (most - least))
            ratio = math.exp(low + float(uniforms[row, 2 * attempt + 1]) * (high - low))
            width, height = np.rint(math.sqrt(area * ratio)), np.rint(math.sqrt(area / ratio))
            if 0 < width <= wide and 0 < height <= tall:
                found = True
                break
        if found:
            top = math.floor(float(uniforms[row, 2 * ATTEMPTS]) * (tall - height + 1))
            left = math.floor(float(uniforms[row, 2 * ATTEMPTS + 1]) * (wide - width + 1))
        else:  # the central box of the nearest allowed ratio
            height, width = tall, wide
            if wide / tall < narrow:
                height = max(np.rint(wide / narrow), 1.0)
            if wide / tall > broad:
                width = max(np.rint(tall * broad), 1.0)
            top, left = math.floor((tall - height) / 2), math.floor((wide - width) / 2)
        placements[row, 0], placements[row, 1], placements[row, 2], placements[row, 3] = (
            top,
            left,
            height,
            width,
        )
        placements[row, 4], placements[row, 5] = top, top + height
        placements[row, 6], placements[row, 7] = left, left + width

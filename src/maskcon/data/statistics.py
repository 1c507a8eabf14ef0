"""Mean and deviation of a set's channels, for normalising its views."""

from __future__ import annotations

import numpy as np

from maskcon.data.dataset import ImageSet

CHUNK_IMAGES, CHUNK_VALUES = 1024, 1 << 22  # looked at together, at most: 32 MB as doubles
SMALLEST_DEVIATION = 1 / 255  # a set of flat images must not blow up when divided by it


def channel_statistics(part: ImageSet) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Compute mean and standard deviation per channel over valid pixels, on 0..1.

    >>> part = ImageSet(np.full((2, 1, 4, 4), 51, np.uint8), np.array([0, 1]), None, np.arange(2))
    >>> channel_statistics(part)
    ((0.2,), (0.00392156862745098,))
    """
    channels = part.images.shape[1]
    total, squares, pixels = np.zeros(channels), np.zeros(channels), 0
    count = max(1, min(CHUNK_IMAGES, CHUNK_VALUES // part.images[0].size))
    for start in range(0, len(part), count):
        images = np.asarray(part.images[start : start + count])
        sizes = None if part.sizes is None else part.sizes[start : start + count]
        valid = _valid(images, sizes)  # [n, 1, H, W]
        levels = images / 255.0 * valid
        total += levels.sum(axis=(0, 2, 3))
        squares += np.square(levels).sum(axis=(0, 2, 3))
        pixels += int(valid.sum())
    mean = total / pixels
    deviation = np.sqrt(np.maximum(squares / pixels - np.square(mean), SMALLEST_DEVIATION**2))
    return tuple(mean.round(6).tolist()), tuple(deviation.tolist())


def _valid(images: np.ndarray, sizes: np.ndarray | None) -> np.ndarray:
    count, _, height, width = images.shape
    if sizes is None:
        return np.ones((count, 1, height, width), dtype=bool)
    rows = np.arange(height)[None, :, None] < sizes[:, 0, None, None]  # [n, H, 1]
    columns = np.arange(width)[None, None, :] < sizes[:, 1, None, None]  # [n, 1, W]
    return np.asarray(rows & columns)[:, None]

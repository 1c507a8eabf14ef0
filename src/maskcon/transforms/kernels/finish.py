"""The last pass over a view: from levels to [0, 1], normalised, in the layout that the encoder wants."""

from __future__ import annotations

from typing import Any

import numpy as np

from maskcon._utils.compilation import entry

Array = Any  # numba's arrays of a fixed type; the signature below names each

SHARE, ZERO, ONE = np.float32(1 / 255), np.float32(0.0), np.float32(1.0)


@entry("float32[:, :, ::1], float32[::1], float32[::1], boolean, int64, float32[:, ::1]")
def finish_rows(
    levels: Array, mean: Array, inverse: Array, channels_last: bool, begin: int, views: Array
) -> None:
    """levels [n, C, P] -> rows from `begin` on of views [B, C*P]: (level / 255, cut to 0..1, - mean) * inverse.

    channels_last: the values of a pixel lie side by side in `views`, else those of a channel. `levels` is used up.
    """
    channels, pixels = levels.shape[1], levels.shape[2]
    for number in range(levels.shape[0]):
        for channel in range(channels):
            for pixel in range(pixels):
                level = min(max(levels[number, channel, pixel] * SHARE, ZERO), ONE)
                levels[number, channel, pixel] = (level - mean[channel]) * inverse[channel]
        if channels_last and channels == 3:
            for pixel in range(pixels):
                views[begin + number, 3 * pixel] = levels[number, 0, pixel]
                views[begin + number, 3 * pixel + 1] = levels[number, 1, pixel]
                views[begin + number, 3 * pixel + 2] = levels[number, 2, pixel]
        else:
            for channel in range(channels):
                for pixel in range(pixels):
                    views[begin + number, channel * pixels + pixel] = levels[number, channel, pixel]

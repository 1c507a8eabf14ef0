"""Shrink 8-bit images with torch's Lanczos filter.

A module of its own, since others avoid importing torch. Pillow's filter is slower: it takes longer to shrink a
photograph than to decode it. Both compute with integers, rows and columns in turn; results differ by rounding, and by
the order of the two where the filter overshoots.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.nn.functional import interpolate


def shrunk(pixels: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Shrink [H, W, C] to (width, height) by Lanczos' filter: [C, height, width].

    >>> shrunk(np.full((4, 6, 3), 7, dtype=np.uint8), (3, 2)).tolist()[0]
    [[7, 7, 7], [7, 7, 7]]
    """
    # a copy: torch warns about Pillow's read-only memory
    whole = torch.tensor(pixels).permute(2, 0, 1)[None]
    try:
        small: NDArray[np.uint8] = interpolate(whole, size[::-1], mode="lanczos", antialias=True)[0].numpy()
    except (NotImplementedError, ValueError):
        # an exported model may run with a torch that is older than this filter
        image = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
        resized = np.asarray(image.resize(size, Image.Resampling.LANCZOS))
        small = resized.reshape(size[1], size[0], pixels.shape[2]).transpose(2, 0, 1)
    return np.ascontiguousarray(small)

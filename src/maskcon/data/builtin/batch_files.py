"""Batches of 32x32 images in pickled dictionaries, as CIFAR and ImageNet 32x32 come: their contents, checked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import CorruptFileError

IMAGE_SHAPE = (3, 32, 32)
IMAGE_BYTES = 3 * 32 * 32


def checked_pixels(path: Path, batch: Mapping[str, Any]) -> NDArray[np.uint8]:
    """Return the images of a batch, [N, 3072] with N > 0; path is for the message."""
    pixels = batch.get("data")
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (IMAGE_BYTES,):
        got = f"{pixels.dtype} {pixels.shape}" if isinstance(pixels, np.ndarray) else type(pixels).__name__
        raise CorruptFileError(
            f"{path}: 'data' should be bytes [N, {IMAGE_BYTES}] (32x32 images), got {got}; nothing was used"
        )
    if not len(pixels):
        raise CorruptFileError(f"{path}: 'data' holds no image; nothing was used")
    return pixels


def checked_labels(
    path: Path, batch: Mapping[str, Any], key: str, count: int, allowed: range
) -> NDArray[np.int64]:
    """Return the labels of a batch under this key, one for each of its images."""
    labels = batch.get(key)
    if (
        not isinstance(labels, list)
        or len(labels) != count
        or any(type(label) is not int for label in labels)
    ):
        raise CorruptFileError(f"{path}: {key!r} should be a list of {count} whole numbers; nothing was used")
    if any(label not in allowed for label in labels):
        raise CorruptFileError(f"{path}: {key!r} should lie in {allowed[0]}..{allowed[-1]}; nothing was used")
    return np.array(labels, dtype=np.int64)

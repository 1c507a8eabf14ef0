"""Single pictures, as paths or Pillow images, into one array: for embedding new images with a trained encoder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from maskcon._utils.errors import DataError, UsageError
from maskcon.data.decoding import UndecodableError, decode, picture_bombs_refused, to_array


def read_images(
    images: Sequence[str | Path | Image.Image], *, channels: int, canvas: int
) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Pictures on a common canvas: uint8 ``[N, C, S, S]`` and the valid (height, width) of each, ``[N, 2]``.

    Each is turned upright, shrunk (never enlarged) to fit S x S and placed in the top-left corner, as a folder's
    pictures are before training. Unlike there, one that cannot be read is an error: the caller counts on N rows.
    """
    if isinstance(images, str | Path | Image.Image):
        raise UsageError("images are given as a list, even if there is only one")
    array = np.zeros((len(images), channels, canvas, canvas), dtype=np.uint8)
    sizes = np.empty((len(images), 2), dtype=np.int32)
    with picture_bombs_refused():
        for row, image in enumerate(images):
            pixels = _pixels(image, canvas, channels)  # [C, H, W]
            sizes[row] = pixels.shape[1:]
            array[row, :, : pixels.shape[1], : pixels.shape[2]] = pixels
    return array, sizes


def _pixels(image: str | Path | Image.Image, canvas: int, channels: int) -> NDArray[np.uint8]:
    try:
        if isinstance(image, Image.Image):
            return to_array(image, canvas, channels)
        if isinstance(image, str | Path):
            return decode(Path(image), canvas, channels)
    except UndecodableError as error:
        name = "a given picture" if isinstance(image, Image.Image) else str(image)
        raise DataError(f"cannot read {name}: {error}") from None
    raise UsageError(f"images are given as paths, Pillow images or a uint8 array, not {type(image).__name__}")

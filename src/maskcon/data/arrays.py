"""Convert arrays of numbers to uint8 images ``[N, C, H, W]``.

The position of the channels is an argument, never guessed: 3 x 32 x 3 could be read either way.
Letters in shapes: N images, D = H * W * C values per image, C channels, H and W rows and columns.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from maskcon._utils.errors import DataError, UsageError, unknown

Channels = Literal["last", "first"]

BYTE_RANGE = (0.0, 255.0)
CLIPPED_SHARE = 0.1  # of values outside the range of the training images: a larger share means another scale
CHUNK_VALUES = 1 << 22  # converted at a time: 32 MB as float64


def are_files(X: Any) -> bool:  # noqa: N803
    """Tell whether X is a list (or array, or column) of paths or Pillow images."""
    if isinstance(X, str | Path | Image.Image):
        raise UsageError("X must be a list of images, even for a single one")
    if isinstance(X, Iterator):  # reading the first item would consume it
        raise UsageError(f"X is a {type(X).__name__}, which can be read only once; give list(X)")
    if getattr(X, "ndim", 1) != 1 or not hasattr(X, "__iter__"):
        return False
    return isinstance(next(iter(X), None), str | Path | Image.Image)


def flattened(X: Any) -> tuple[Any, tuple[int, ...] | None]:  # noqa: N803
    """Return rows ``[N, D]`` and the shape of one image; (X, None) for tables."""
    if not hasattr(X, "ndim"):
        try:
            X = np.asarray(X)  # noqa: N806 - nested lists
        except ValueError as error:
            if "inhomogeneous" not in str(error):
                raise
            raise DataError(
                "X holds arrays of several shapes; bring them to one, or give Pillow images, which may differ in size"
            ) from None
    if X.ndim <= 2:
        return X, None
    if X.ndim > 4:
        raise DataError(f"X is {list(X.shape)}; images are [N, H, W], [N, H, W, C], [N, C, H, W] or [N, D]")
    array = np.asarray(X)
    return array.reshape(len(array), int(np.prod(array.shape[1:]))), array.shape[1:]


def chosen_shape(image_shape: Sequence[int], values: int) -> tuple[int, ...]:
    """Return the shape of one image of `values` numbers; one entry may be -1.

    >>> chosen_shape((8, 8), 64), chosen_shape((-1, 32, 3), 1920)
    ((8, 8), (20, 32, 3))
    """
    try:
        sides = tuple(int(side) for side in image_shape)
        whole = sides == tuple(image_shape)
    except (TypeError, ValueError):
        sides, whole = (), False
    if not whole or len(sides) not in (2, 3) or sides.count(-1) > 1 or any(s < 1 for s in sides if s != -1):
        raise UsageError(
            f"image_shape={image_shape!r} is not a shape of an image: give (H, W), or (H, W, C) or (C, H, W) as "
            "`channels` says, with -1 for at most one of them"
        )
    known = math.prod(side for side in sides if side != -1)
    if values % known or (-1 not in sides and known != values):
        raise DataError(f"image_shape={sides} does not fit images of {values} values")
    return tuple(values // known if side == -1 else side for side in sides)


def planes(shape: Sequence[int], channels: Channels) -> tuple[int, int, int]:
    """Return (C, H, W) of an image of this shape; two sides mean grey.

    >>> planes((28, 28), "last"), planes((32, 20, 3), "last"), planes((3, 32, 20), "first")
    ((1, 28, 28), (3, 32, 20), (3, 32, 20))
    """
    if channels not in get_args(Channels):
        raise unknown("value for channels", str(channels), get_args(Channels))
    if len(shape) == 2:
        return 1, shape[0], shape[1]
    height, width, count = shape if channels == "last" else (shape[1], shape[2], shape[0])
    if count not in (1, 3):
        other, place = ("first", shape[0]) if channels == "last" else ("last", shape[2])
        hint = f"; did you mean channels={other!r}?" if place in (1, 3) else ""
        raise DataError(
            f"with channels={channels!r}, images of shape {tuple(shape)} have {count} channels, and 1 (grey) or "
            f"3 (colour) are possible{hint}"
        )
    return count, height, width


def value_range(values: NDArray[Any]) -> tuple[float, float]:
    """Return black and white: 0 and 255 for bytes, else the extreme values.

    >>> value_range(np.array([[0, 16]], dtype=np.uint8)), value_range(np.array([[0.0, 16.0]]))
    ((0.0, 255.0), (0.0, 16.0))
    """
    if values.dtype == np.uint8:
        return BYTE_RANGE
    low, high = float(values.min()), float(values.max())
    if not math.isfinite(high - low):
        raise DataError(f"values from {low:g} to {high:g} are too far apart to be pixels; scale them first")
    return low, high


def checked_range(pixel_range: Sequence[float]) -> tuple[float, float]:
    """Check a range given by the user: two increasing numbers."""
    try:
        low, high = (float(end) for end in pixel_range)
    except (TypeError, ValueError):
        low = high = math.nan
    if not (low < high and math.isfinite(high - low)):
        raise UsageError(f"pixel_range={pixel_range!r} is not a range: give (black, white), such as (0, 255)")
    return low, high


def images_of(
    rows: NDArray[Any], shape: Sequence[int], channels: Channels, pixel_range: tuple[float, float]
) -> NDArray[np.uint8]:
    """Scale rows of numbers to uint8 images ``[N, C, H, W]``; clip to `pixel_range`.

    Args:
        rows: ``[N, D]``, each an image of `shape` in C order.
        shape: (H, W), (H, W, C) or (C, H, W), as `channels` says.

    >>> images_of(np.array([[0.0, 0.5, 1.0, 9.0]]), (2, 2), "last", (0.0, 1.0)).tolist()
    [[[[0, 128], [255, 255]]]]
    """
    count, height, width = planes(shape, channels)
    pixels = np.empty((len(rows), count, height, width), dtype=np.uint8)
    step = max(1, CHUNK_VALUES // max(1, rows.shape[1]))
    for start in range(0, len(rows), step):
        levels = _levels(rows[start : start + step], pixel_range)  # [n, D]
        if len(shape) == 3 and channels == "last":
            levels = levels.reshape(-1, height, width, count).transpose(0, 3, 1, 2)
        pixels[start : start + step] = levels.reshape(-1, count, height, width)
    return pixels


def warn_of_another_scale(rows: NDArray[Any], pixel_range: tuple[float, float]) -> None:
    """Warn if images ``[N, D]`` are not on the scale of the training images."""
    if rows.dtype == np.uint8 and pixel_range == BYTE_RANGE:
        return
    low, high = pixel_range
    outside = float(np.mean((rows < low) | (rows > high)))
    if outside > CLIPPED_SHARE:
        problem = (
            f"{outside:.0%} of the values lie outside {low:g}..{high:g}, the range of fit, and are clipped"
        )
    elif pixel_range == BYTE_RANGE and rows.dtype.kind == "f" and rows.max() <= 1:
        problem = "fit saw values from 0 to 255, and these go from 0 to 1"
    else:
        return
    # 5: the caller's line, beyond the estimator's method and scikit-learn's wrapper
    warnings.warn(f"{problem}; bring X to the scale of fit, or set pixel_range", UserWarning, stacklevel=5)


def _levels(rows: NDArray[Any], pixel_range: tuple[float, float]) -> NDArray[np.uint8]:
    if rows.dtype == np.uint8 and pixel_range == BYTE_RANGE:
        return rows
    low, high = pixel_range
    if high == low:  # uniform images: all are black
        return np.zeros(rows.shape, dtype=np.uint8)
    shares = (rows.astype(np.float64) - low) / (high - low)
    # floor(x + 0.5): numpy rounds halves to even
    levels: NDArray[np.uint8] = np.floor(np.clip(shares, 0.0, 1.0) * 255 + 0.5).astype(np.uint8)
    return levels

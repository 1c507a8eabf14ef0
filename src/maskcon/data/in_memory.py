"""Make a dataset for `maskcon.fit` from images and labels in memory."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from maskcon._utils.errors import DataError, UsageError
from maskcon._utils.text import counted
from maskcon.data.arrays import BYTE_RANGE, Channels, images_of
from maskcon.data.dataset import Dataset, ImageSet
from maskcon.data.decoding import (
    UndecodableError,
    checked_side,
    decompression_bombs_refused,
    is_grey,
    read_images,
    read_shape,
)
from maskcon.data.folder_layout import FineLabels, path_hash
from maskcon.data.photos import family_of, trimmed
from maskcon.data.splits import HELD_OUT_FRACTION, held_out

Images = NDArray[np.uint8] | Sequence[Any]
Labels = Sequence[Any] | NDArray[Any]
Label = str | int


def from_arrays(
    images: Images,
    coarse: Labels,
    fine: Labels | None = None,
    *,
    test: tuple[Images, Labels] | tuple[Images, Labels, Labels | None] | None = None,
    ids: Sequence[Label] | None = None,
    name: str = "arrays",
    channels: Channels = "last",
    image_size: int | None = None,
    fraction: float = HELD_OUT_FRACTION,
) -> Dataset:
    """Make a dataset of N images in memory.

    Args:
        images: uint8 ``[N, H, W]``, ``[N, H, W, C]`` or (channels="first") ``[N, C, H, W]``, C 1 or 3; or a list of
            Pillow images, paths or such single arrays, each of any size.
        coarse: N labels, text or whole numbers.
        fine: N labels to score with; each belongs to one coarse label.
        test: images, coarse labels and, if known, fine labels to score on. None: a share of the N is held out.
        ids: N permanent names, which decide what is held out. None: each image's content decides. Either way, added
            images do not move others between train and test.
        image_size: for lists, the side of the canvas; larger images are shrunk. None: the largest side, at most 256.
        fraction: the share held out.

    Example:
        >>> images = np.random.default_rng(0).integers(0, 256, (40, 16, 16, 3)).astype(np.uint8)
        >>> data = from_arrays(images, ["cat", "dog"] * 20)
        >>> data.coarse_names, data.train.images.shape[1:], len(data.train) + len(data.test)
        (('cat', 'dog'), (3, 16, 16), 40)
    """
    parts = [_Part("images", images, coarse, fine)]
    if test is not None:
        parts.append(_Part("test images", *test))
    coarse_of = _coarse_of_fine(parts)
    coarse_labels = _in_order(label for part in parts for label in part.coarse)
    pixels = _pixels([part.images for part in parts], channels, image_size)
    keys = _keys(images, pixels[0][0], ids)
    sets = [
        ImageSet(
            images=array,
            coarse=_numbers(coarse_labels, part.coarse),
            fine=None if part.fine is None else _numbers(coarse_of, part.fine),
            index=_unique_ids(keys) if place == 0 else np.arange(len(array), dtype=np.int64),
            sizes=sizes,
        )
        for place, (part, (array, sizes)) in enumerate(zip(parts, pixels, strict=True))
    ]
    notes: tuple[str, ...] = ()
    if test is None:
        coarse_text = [str(label) for label in parts[0].coarse]
        fine_text = None if parts[0].fine is None else [str(label) for label in parts[0].fine]
        is_held = np.array(held_out([path_hash(key) for key in keys], coarse_text, fine_text, fraction))
        whole = sets[0]
        sets = [whole.subset(np.flatnonzero(~is_held)), whole.subset(np.flatnonzero(is_held))]
        notes = (f"{int(is_held.sum()):,} of {counted(len(whole), 'image')} held out to score on",)
    return Dataset(
        name=name,
        train=sets[0],
        test=sets[1],
        coarse_names=tuple(str(label) for label in coarse_labels),
        fine_names=tuple(str(label) for label in coarse_of) or None,
        family=family_of(sets[0].images),
        coarse_of_fine=tuple(coarse_labels.index(label) for label in coarse_of.values()) or None,
        notes=notes,
    )


class _Part:
    """Images and their labels, one each."""

    def __init__(self, what: str, images: Images, coarse: Labels, fine: Labels | None = None) -> None:
        if isinstance(images, str | Path | Image.Image):
            raise UsageError(f"{what} must be given as an array or a list, even a single one")
        if len(images) == 0:
            raise DataError(f"there are no {what}")
        self.images = images
        self.coarse = _plain_labels("coarse label", coarse, len(images))
        self.fine = None if fine is None else _plain_labels("fine label", fine, len(images))


def _plain_labels(kind: str, labels: Labels, count: int) -> list[Label]:
    values = np.asarray(labels).tolist() if not isinstance(labels, list | tuple) else list(labels)
    plain = [value.item() if isinstance(value, np.generic) else value for value in values]
    for row, value in enumerate(plain):
        if not isinstance(value, str | int) or isinstance(value, bool) or value == "":
            raise DataError(f"the {kind} of image {row} is {value!r}; text or whole numbers are needed")
    if len(plain) != count:
        raise DataError(f"{counted(count, 'image')} and {counted(len(plain), kind)}; give one per image")
    return plain


def _coarse_of_fine(parts: Sequence[_Part]) -> dict[Label, Label]:
    """Map each fine label, in order, to its coarse label."""
    labels = FineLabels()
    coarse_of: dict[Label, Label] = {}
    for part in parts:
        for row, (coarse, fine) in enumerate(zip(part.coarse, part.fine or (), strict=False)):
            if conflict := labels.conflict(str(fine), str(coarse), f"image {row}"):
                raise DataError(f"image {row}: {conflict}")
            coarse_of[fine] = coarse
    return {fine: coarse_of[fine] for fine in _in_order(coarse_of)}


def _numbers(names: Iterable[Label], labels: Sequence[Label]) -> NDArray[np.int64]:
    number_of = {name: number for number, name in enumerate(names)}
    return np.array([number_of[label] for label in labels], dtype=np.int64)


def _in_order(labels: Iterable[Label]) -> list[Label]:
    """Sort distinct labels: numbers by value, then text."""
    return sorted(set(labels), key=lambda label: (isinstance(label, str), label))


def _pixels(
    given: Sequence[Images], channels: Channels, image_size: int | None
) -> list[tuple[NDArray[np.uint8], NDArray[np.int32] | None]]:
    """Convert parts to uint8 [N, C, H, W] with valid sizes [N, 2] where they differ."""
    if all(isinstance(images, np.ndarray) for images in given):
        if image_size is not None:
            raise UsageError(
                f"image_size={image_size} is for lists of images; arrays are taken in their own size"
            )
        return [(_from_array(np.asarray(images), channels), None) for images in given]
    items = [_as_image(item, channels) for images in given for item in images]
    canvas, depth = _common(items, checked_side(image_size))
    array, sizes = read_images(items, channels=depth, canvas=canvas)
    images, valid = trimmed(array, sizes)
    count = len(given[0])
    spans = (slice(0, count), slice(count, None))[: len(given)]
    return [(images[span], None if valid is None else valid[span]) for span in spans]


def _from_array(images: NDArray[Any], channels: Channels) -> NDArray[np.uint8]:
    if images.dtype != np.uint8 or images.ndim not in (3, 4):
        raise DataError(
            f"images must be uint8 [N, H, W], [N, H, W, C] or [N, C, H, W], got {images.dtype} {images.shape}; "
            "scale values of another range to 0..255 first"
        )
    return images_of(images.reshape(len(images), -1), images.shape[1:], channels, BYTE_RANGE)


def _as_image(item: Any, channels: Channels) -> Image.Image | Path:
    """Convert an array of one image to a Pillow image; keep images and paths."""
    if isinstance(item, np.ndarray):
        pixels = _from_array(item[None], channels)[0]  # [C, H, W]
        return Image.fromarray(
            pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0))
        )
    if isinstance(item, Image.Image):
        return item
    if isinstance(item, str | Path):
        return Path(item)
    raise UsageError(
        f"a list of images holds Pillow images, paths or uint8 arrays, not {type(item).__name__}"
    )


def _common(items: Sequence[Image.Image | Path], limit: int) -> tuple[int, int]:
    """Find the canvas side and the number of channels that fit all images."""
    longest, all_grey = 1, True
    with decompression_bombs_refused():
        for item in items:
            if isinstance(item, Path):
                try:
                    shape = read_shape(item)
                except UndecodableError as error:
                    raise DataError(f"cannot read {item}: {error}") from None
                side, grey = shape.longest_side, shape.is_grey
            else:
                side, grey = max(item.size), is_grey(item)
            longest, all_grey = max(longest, side), all_grey and grey
    return min(limit, longest), 1 if all_grey else 3


def _keys(images: Images, pixels: NDArray[np.uint8], ids: Sequence[Label] | None) -> list[str]:
    """Return each image's key: its id, or a hash of its content as given."""
    if ids is not None:
        keys = [str(label) for label in _plain_labels("id", ids, len(images))]
        if len(set(keys)) != len(keys):
            raise DataError(
                f"{len(set(keys)):,} different ids for {counted(len(images), 'image')}; give one per image"
            )
        return keys
    if isinstance(images, np.ndarray):
        return [hashlib.sha256(row.tobytes()).hexdigest() for row in pixels]
    return [hashlib.sha256(_content(item)).hexdigest() for item in images]


def _content(item: Any) -> bytes:
    if isinstance(item, Image.Image):
        return f"{item.mode};{item.size};".encode() + item.tobytes()
    if isinstance(item, np.ndarray):
        return f"{item.shape};".encode() + item.tobytes()
    return Path(item).read_bytes()


def _unique_ids(keys: Sequence[str]) -> NDArray[np.int64]:
    """Make ids [N], unique even for equal images."""
    count: Counter[str] = Counter()
    ids = []
    for key in keys:
        count[key] += 1
        ids.append(path_hash(key if count[key] == 1 else f"{key}#{count[key]}"))
    return np.array(ids, dtype=np.int64)

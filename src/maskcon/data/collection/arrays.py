"""Pictures that come as arrays: both parts of a data set, train before test."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from maskcon.data import Dataset, ImageSet
from maskcon.data.collection.base import Block, Stamp

# of red, green, blue in 1/65536: ITU-R 601, as Pillow has it
LUMA = np.array([19595, 38470, 7471], dtype=np.uint32)


class ArrayPictures:
    """See `Pictures`. Each is called by its path in the source, or else, unless all have one of their own, part/id.

    channels: what they are turned into, grey or colour
    """

    root = ""

    def __init__(self, source: str, data: Dataset, *, channels: int) -> None:
        self.source, self.notes = source, data.notes
        self.empty = f"{source} holds no picture"
        self.unreadable: dict[str, str] = {}
        self._data, self._channels = data, channels
        self.image_bytes = channels * int(np.prod(data.train.images.shape[2:]))

    @cached_property
    def paths(self) -> list[str]:
        parts = {"train": self._data.train, "test": self._data.test}
        own = [path for part in parts.values() for path in part.paths or ()]
        if len(set(own)) == sum(len(part) for part in parts.values()):
            return own
        return [f"{name}/{index}" for name, part in parts.items() for index in part.index.tolist()]

    @cached_property
    def coarse(self) -> list[str | None]:
        labels = np.concatenate([self._data.train.coarse, self._data.test.coarse])
        return [self._data.coarse_names[label] for label in labels.tolist()]

    @cached_property
    def stamps(self) -> list[Stamp]:
        # one at a time: the array may be larger than memory
        return [
            Stamp(self.picture(row).nbytes, int(self._digest(row)[:15], 16)) for row in range(len(self.paths))
        ]

    def digests(self, rows: Sequence[int]) -> list[str | None]:
        return [self._digest(row) for row in rows]

    def _digest(self, row: int) -> str:
        """The same bytes in another shape are another picture."""
        pixels = self.picture(row)
        return hashlib.sha256(f"{pixels.shape};".encode() + pixels.tobytes()).hexdigest()

    def read(self, rows: Sequence[int]) -> Block:
        found = [self._part(row) for row in rows]
        images = np.stack([part.images[inner] for part, inner in found])
        sizes = None
        if any(part.sizes is not None for part, _ in found):
            canvas = images.shape[2:]
            known = [canvas if part.sizes is None else part.sizes[inner] for part, inner in found]
            sizes = np.array(known, dtype=np.int32)
        return Block(with_channels(images, self._channels), sizes, list(rows), {})

    def picture(self, row: int) -> NDArray[np.uint8]:
        """[C, h, w] as it is in the data set, without the empty rest of its canvas."""
        part, inner = self._part(row)
        return part.picture(inner)

    @cached_property
    def row_of(self) -> dict[str, int]:
        """Path -> row."""
        return {path: row for row, path in enumerate(self.paths)}

    def _part(self, row: int) -> tuple[ImageSet, int]:
        count = len(self._data.train)
        return (self._data.train, row) if row < count else (self._data.test, row - count)


def with_channels(images: NDArray[np.uint8], channels: int) -> NDArray[np.uint8]:
    """Grey images as colour ones or the reverse: uint8 [N, 1 or 3, H, W] -> [N, channels, H, W].

    >>> with_channels(np.full((1, 3, 1, 1), 200, np.uint8), 1).ravel().tolist()
    [200]
    """
    if images.shape[1] == channels:
        return images
    if images.shape[1] == 1:
        return np.repeat(images, channels, axis=1)
    grey: NDArray[np.uint32] = (np.einsum("nchw,c->nhw", images.astype(np.uint32), LUMA) + 0x8000) >> 16
    return grey.astype(np.uint8)[:, None]

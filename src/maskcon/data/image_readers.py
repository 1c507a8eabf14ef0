"""Read the images of a source in blocks, from files or from arrays.

Letters in shapes: M images that could be read, C channels, H and W the canvas.
"""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import stop_at_breakdown
from maskcon.data.dataset import Dataset, ImageSet
from maskcon.data.decoding import UndecodableError, decode
from maskcon.data.folder_layout import show
from maskcon.data.packing import fill, map_files

BLOCK_BYTES = 64 << 20  # of decoded images at a time


class Stamp(NamedTuple):
    """Size and time of a file; equal stamps mean an unchanged file.

    For an image in an array: the number of its bytes, and part of its digest in place of the time.
    """

    size: int
    mtime_ns: int


@dataclass(frozen=True, eq=False)
class Block:
    """Some images on a common canvas.

    images: uint8 [M, C, H, W]; sizes: [M, 2] valid (height, width); None: the whole canvas
    rows: [M] row of each image in the source; failures: row -> why there is no image
    """

    images: NDArray[np.uint8]
    sizes: NDArray[np.int32] | None
    rows: list[int]
    failures: dict[int, str]


def at_once(images: Images, limit: int) -> int:
    """Return how many images to read at a time, within `limit` and BLOCK_BYTES."""
    return max(1, min(limit, BLOCK_BYTES // images.image_bytes))


def none_readable(images: Images, failures: Mapping[str, str]) -> str:
    """Say that there is no readable image; failures: path -> reason, of all images."""
    if not failures:
        return images.empty
    first, why = next(iter(failures.items()))
    example = f"{show(first)} ({show(why)})"
    source = show(images.source)
    if len(failures) == 1:
        return f"the one image of {source} cannot be read: {example}"
    return f"none of the {len(failures):,} images of {source} can be read; the first: {example}"


class ImageFiles:
    """Image files in the order of their source, by row number.

    Links are followed; only regular files are opened.

    Args:
        source: address of the images, valid in any directory
        root: the folder that paths start from
        labelled: path (with `/`) and coarse label ("" or None if unknown); repeated paths are ignored
        canvas, channels: what images are decoded onto
        empty: message for a source without images
        unreadable: path -> reason, known before reading; not among `paths`
        notes: what a user should know about the source
    """

    def __init__(
        self,
        source: str,
        root: Path,
        labelled: Iterable[tuple[str, str | None]],
        *,
        canvas: int,
        channels: int,
        empty: str,
        unreadable: Mapping[str, str] | None = None,
        notes: tuple[str, ...] = (),
    ) -> None:
        self.source, self.root, self.empty, self.notes = source, str(root), empty, notes
        self.paths: list[str] = []
        self.coarse: list[str | None] = []
        self.stamps: list[Stamp] = []
        self.unreadable: dict[str, str] = dict(unreadable or {})
        self.image_bytes = channels * canvas**2
        self._folder, self._canvas, self._channels = root, canvas, channels
        seen: set[str] = set()
        for path, coarse in labelled:
            if path in seen:
                continue
            seen.add(path)
            found = self._stamp(path)
            if isinstance(found, str):
                self.unreadable[path] = found
                continue
            self.paths.append(path)
            self.coarse.append(coarse or None)
            self.stamps.append(found)

    def _stamp(self, path: str) -> Stamp | str:
        try:
            status = (self._folder / path).stat()
        except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
            stop_at_breakdown(error, self._folder / path)
            return getattr(error, "strerror", None) or str(error)
        if not stat.S_ISREG(status.st_mode):
            return "not a regular file"  # opening a pipe might never return
        return Stamp(status.st_size, status.st_mtime_ns)

    def digests(self, rows: Sequence[int]) -> list[str | None]:
        """Hash the content of these rows (sha256, hex); None where unreadable."""

        def work(place: int) -> str | None:
            path = self._folder / self.paths[rows[place]]
            try:
                with path.open("rb") as file:
                    return hashlib.file_digest(file, "sha256").hexdigest()
            except OSError as error:
                stop_at_breakdown(error, path)
                return None

        return map_files(work, len(rows))

    def read(self, rows: Sequence[int]) -> Block:
        images = np.zeros((len(rows), self._channels, self._canvas, self._canvas), dtype=np.uint8)

        def work(place: int) -> NDArray[np.uint8]:
            path = self.paths[rows[place]]
            pixels = decode(self._folder / path, self._canvas, self._channels)
            if self._stamp(path) != self.stamps[rows[place]]:
                # the stamp or digest may belong to other content
                raise UndecodableError("changed while it was read")
            return pixels

        filled = fill(images, work)
        return Block(
            images=filled.images,
            sizes=filled.sizes,
            rows=[rows[place] for place in filled.kept],
            failures={rows[place]: why for place, why in filled.failures.items()},
        )


# weights of red, green and blue in 1/65536: ITU-R 601, as in Pillow
LUMA = np.array([19595, 38470, 7471], dtype=np.uint32)


class ImageArrays:
    """Images of a dataset, read like `ImageFiles`; named as in `Dataset.image_names`.

    channels: 1 or 3, to which they are converted
    """

    root = ""

    def __init__(self, source: str, data: Dataset, *, channels: int) -> None:
        self.source, self.notes = source, data.notes
        self.empty = f"{source} holds no image"
        self.unreadable: dict[str, str] = {}
        self._data, self._channels = data, channels
        self.image_bytes = channels * int(np.prod(data.train.images.shape[2:]))
        self.paths = [name for part in data.image_names for name in part]
        labels = np.concatenate([data.train.coarse, data.test.coarse])
        self.coarse: list[str | None] = [data.coarse_names[label] for label in labels.tolist()]

    @cached_property
    def stamps(self) -> list[Stamp]:
        # one at a time: the array may be larger than memory
        rows = range(len(self.paths))
        return [Stamp(self.image(row).nbytes, int(self._digest(row)[:15], 16)) for row in rows]

    def digests(self, rows: Sequence[int]) -> list[str | None]:
        return [self._digest(row) for row in rows]

    def _digest(self, row: int) -> str:
        """Hash shape and pixels of an image."""
        pixels = self.image(row)
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

    def image(self, row: int) -> NDArray[np.uint8]:
        """Return an image [C, h, w] of the dataset without the empty rest of its canvas."""
        part, inner = self._part(row)
        return part.image(inner)

    @cached_property
    def row_of(self) -> dict[str, int]:
        """Map each path to its row."""
        return {path: row for row, path in enumerate(self.paths)}

    def _part(self, row: int) -> tuple[ImageSet, int]:
        count = len(self._data.train)
        return (self._data.train, row) if row < count else (self._data.test, row - count)


Images = ImageFiles | ImageArrays


def with_channels(images: NDArray[np.uint8], channels: int) -> NDArray[np.uint8]:
    """Convert grey to colour or back: uint8 [N, 1 or 3, H, W] -> [N, channels, H, W].

    >>> with_channels(np.full((1, 3, 1, 1), 200, np.uint8), 1).ravel().tolist()
    [200]
    """
    if images.shape[1] == channels:
        return images
    if images.shape[1] == 1:
        return np.repeat(images, channels, axis=1)
    grey: NDArray[np.uint32] = (np.einsum("nchw,c->nhw", images.astype(np.uint32), LUMA) + 0x8000) >> 16
    return grey.astype(np.uint8)[:, None]

"""The images of a session, read on demand; only re-encoded pixels are served, never files."""

from __future__ import annotations

import io
import stat
import threading
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from maskcon._utils.errors import UsageError
from maskcon._utils.paths import resolved
from maskcon.app.thumbnails import Thumbnails
from maskcon.data.collection import gather
from maskcon.data.decoding import DEFAULT_SIDE, UndecodableError, decode
from maskcon.data.image_readers import ImageArrays, ImageFiles, Images, with_channels
from maskcon.report.style import as_pixels
from maskcon.retrieval.store import Entry, Header

SIDES = (64, 128, 256)  # of thumbnails
FULL_SIDE = 1024
EXACT_SIDE = 64  # images up to this side are encoded without loss
QUALITY = 85
MOST_FILE_BYTES = 512 << 20
DECODED_AT_ONCE = 2  # a large image takes much memory


class MissingImageError(UsageError):
    """An image does not exist, or can no longer be read."""


class SessionImages:
    """Reads images by row number.

    Args:
        entries: paths and checksums, one per row.
        canvas: side at which datasets that are decoded as a whole were embedded.
        data_root: folder of the datasets.
        outside: also show files outside of the source's folder, reached by links or absolute paths.
    """

    def __init__(
        self,
        header: Header,
        entries: Sequence[Entry],
        thumbnails: Thumbnails,
        *,
        canvas: int = DEFAULT_SIDE,
        data_root: Path | None = None,
        outside: bool = False,
    ) -> None:
        self._header, self._entries, self._thumbnails = header, entries, thumbnails
        self._canvas, self._data_root, self._outside = canvas, data_root, outside
        self._root = resolved(Path(header.root)) if header.root else None
        self._gathering, self._decoding = threading.Lock(), threading.Semaphore(DECODED_AT_ONCE)

    def thumbnail(self, row: int, side: int) -> bytes:
        """Return an encoded image of at most side x side, from the cache if possible."""
        key = f"{self._entry(row).digest}/{side}"
        found = self._thumbnails.get(key)
        if found is None:
            found = encoded(self.array(row, side))
            self._thumbnails.put(key, found)
        return found

    def full(self, row: int) -> bytes:
        """Return an encoded image of at most 1024 x 1024."""
        return encoded(self.array(row, FULL_SIDE))

    def array(self, row: int, side: int) -> NDArray[np.uint8]:
        """Return an image [C, h, w] that fits side x side.

        Raises:
            MissingImageError: the image cannot be read, or lies outside of the source.
        """
        entry = self._entry(row)
        with self._decoding:
            if self._root is None:
                return self._of_dataset(entry, side)
            try:
                content = io.BytesIO(self._content(self._root, entry.path))
                return decode(content, side, 3, without_torch=True)
            except UndecodableError as error:
                raise MissingImageError(f"image {row} cannot be read: {error}") from None
            except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
                reason = getattr(error, "strerror", None) or "not a file name"
                raise MissingImageError(f"image {row} cannot be read: {reason}") from None

    def reader(self) -> Images:
        """Return a reader of all images, for an export; files outside of the source are left out."""
        if self._root is None:
            with self._gathering:
                return self._images
        root = self._root
        named = [
            (entry.path, entry.coarse)
            for entry in self._entries
            if self._outside or self._is_inside(entry.path)
        ]
        return ImageFiles(self._header.source, root, named, canvas=FULL_SIDE, channels=3, empty="no image")

    def etag(self, row: int, side: int) -> str:
        """Return the ETag of a thumbnail."""
        return f'"{self._entry(row).digest[:16]}-{side}"'

    def _entry(self, row: int) -> Entry:
        if not 0 <= row < len(self._entries):
            raise MissingImageError(f"there is no image {row}; the last is {len(self._entries) - 1}")
        return self._entries[row]

    def _content(self, root: Path, name: str) -> bytes:
        path = resolved(root / name)
        if not self._outside and not self._is_inside(name):
            raise MissingImageError(
                "the image lies outside of the folder of its source; restart with --outside to show such images"
            )
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # opening a pipe might never return
            raise MissingImageError("the image is not a regular file")
        if status.st_size > MOST_FILE_BYTES:
            raise MissingImageError(f"the file of the image is larger than {MOST_FILE_BYTES >> 20} MB")
        return path.read_bytes()

    def _is_inside(self, name: str) -> bool:
        return self._root is not None and resolved(self._root / name).is_relative_to(self._root)

    def _of_dataset(self, entry: Entry, side: int) -> NDArray[np.uint8]:
        with self._gathering:
            images = self._images
        row = images.row_of.get(entry.path) if isinstance(images, ImageArrays) else None
        if row is None or not isinstance(images, ImageArrays):
            raise MissingImageError(f"{self._header.source} no longer has the image {entry.path}")
        pixels: NDArray[np.uint8] = with_channels(images.image(row)[None], 3)[0]
        if max(pixels.shape[1:]) <= side:
            return pixels
        image = Image.fromarray(as_pixels(pixels))
        image.thumbnail((side, side))
        shrunk: NDArray[np.uint8] = np.asarray(image).transpose(2, 0, 1)
        return shrunk

    @cached_property
    def _images(self) -> Images:
        return gather(self._header.source, canvas=self._canvas, channels=3, root=self._data_root)


def encoded(pixels: NDArray[np.uint8]) -> bytes:
    """Encode an image [C, h, w]: PNG if it is small, else JPEG."""
    image, stream = Image.fromarray(as_pixels(pixels)), io.BytesIO()
    if max(image.size) <= EXACT_SIDE:
        image.save(stream, format="PNG")
    else:
        image.save(stream, format="JPEG", quality=QUALITY)
    return stream.getvalue()


def media_type(content: bytes) -> str:
    """Return the media type of what `encoded` gave."""
    return "image/png" if content.startswith(b"\x89PNG") else "image/jpeg"

"""Features on disk, in chunks: a kill costs one, a damaged one is computed again.

features/<key>/description.json   what the features depend on; the key is its hash
               features.npy       [N, V, F], whole from the start, with gaps until it is done
               done.txt           a line "chunk sha256" for each chunk that is in place
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import MaskconError, UsageError
from maskcon._utils.files import failpoint, make_folder, reserve, sync_file, sync_folder, write_atomically
from maskcon._utils.paths import cache_root

FORMAT_VERSION = 1
CHUNK_IMAGES = 64
DESCRIPTION, FEATURES, DONE = "description.json", "features.npy", "done.txt"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def features_folder() -> Path:
    """Return the user's folder of cached features; it may be deleted at any time."""
    return cache_root() / "features"


def key_of(description: Mapping[str, Any]) -> str:
    """Return the name of a cache, by weights, views, sizes, seed and images."""
    text = json.dumps({"format": FORMAT_VERSION, "chunk": CHUNK_IMAGES, **description}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


class FeatureFile:
    """Array of one cache, [N images, V views, F], and which chunks are complete.

    Args:
        folder: created if missing.
        shape: (N, V, F).
        dtype: float16 for views that are trained on, float32 for those that are scored.
        description: kept beside the array for people.
    """

    def __init__(
        self, folder: Path, shape: tuple[int, int, int], dtype: str, description: Mapping[str, Any]
    ) -> None:
        self.folder, self.shape, self.dtype = folder, shape, np.dtype(dtype).newbyteorder("<")
        self.chunks = -(-shape[0] // CHUNK_IMAGES)
        header = BytesIO()
        np.lib.format.write_array_header_1_0(
            header, {"descr": self.dtype.str, "fortran_order": False, "shape": shape}
        )
        self._header = header.getvalue()
        self._row_bytes = shape[1] * shape[2] * self.dtype.itemsize
        try:
            make_folder(folder)
            if not self._matches():
                self._create(description)
        except OSError as error:
            raise cannot_keep(folder, error) from error

    @property
    def path(self) -> Path:
        return self.folder / FEATURES

    @property
    def size_bytes(self) -> int:
        return len(self._header) + self.shape[0] * self._row_bytes

    def rows(self, chunk: int) -> range:
        """Return the row numbers of a chunk."""
        return range(chunk * CHUNK_IMAGES, min((chunk + 1) * CHUNK_IMAGES, self.shape[0]))

    def missing(self) -> list[int]:
        """Return the chunks that are missing or do not match their checksum."""
        checksums, array = self._checksums(), self.array()
        spans = [slice(self.rows(chunk).start, self.rows(chunk).stop) for chunk in range(self.chunks)]
        return [
            chunk
            for chunk, span in enumerate(spans)
            if chunk not in checksums or _digest(array[span].tobytes()) != checksums[chunk]
        ]

    def write(self, chunk: int, values: NDArray[np.floating[Any]]) -> None:
        """Write a chunk: its bytes, then, once they are synced, its checksum."""
        data = np.ascontiguousarray(values, dtype=self.dtype).tobytes()
        if len(data) != len(self.rows(chunk)) * self._row_bytes:
            raise ValueError(f"chunk {chunk} has {values.shape}, which does not fit {self.shape}")
        try:
            with self.path.open("r+b") as file:
                file.seek(len(self._header) + self.rows(chunk).start * self._row_bytes)
                file.write(data)
                sync_file(file)
            failpoint("between-features-and-line")
            with (self.folder / DONE).open("ab") as file:
                # a line that a kill cut off must not swallow this one
                file.write(f"\n{chunk} {_digest(data)}\n".encode())
                sync_file(file)
        except OSError as error:
            raise cannot_keep(self.folder, error) from error

    def array(self) -> np.memmap[Any, np.dtype[np.floating[Any]]]:
        """Return all features, memory-mapped."""
        return np.memmap(self.path, self.dtype, mode="r", offset=len(self._header), shape=self.shape)

    def _matches(self) -> bool:
        try:
            with self.path.open("rb") as file:
                same = file.read(len(self._header)) == self._header
            return same and self.path.stat().st_size == self.size_bytes
        except FileNotFoundError:
            return False

    def _create(self, description: Mapping[str, Any]) -> None:
        (self.folder / DONE).unlink(missing_ok=True)
        write_atomically(self.folder / DESCRIPTION, (json.dumps(description, indent=1) + "\n").encode())
        partial = self.folder / f".{FEATURES}.tmp"
        try:
            with partial.open("wb") as file:
                file.write(self._header)
                file.truncate(self.size_bytes)
                reserve(file, self.size_bytes)  # a full disk says so now, not after minutes of work
            partial.replace(self.path)
        except OSError:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
            raise
        sync_folder(self.folder)

    def _checksums(self) -> dict[int, str]:
        try:
            lines = (self.folder / DONE).read_text(encoding="ascii", errors="replace").splitlines()
        except FileNotFoundError:
            return {}
        parts = [line.split(" ") for line in lines]
        return {int(p[0]): p[1] for p in parts if len(p) == 2 and p[0].isdecimal() and len(p[1]) == 64}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def cannot_keep(folder: Path, error: OSError) -> MaskconError:
    """Return the error for a cache that cannot be written."""
    what = f"cannot keep features in {folder}: {error.strerror or error}"
    if error.errno in FULL:
        return MaskconError(
            f"{what}; free some space and rerun the same command, or set XDG_CACHE_HOME to a larger disk"
        )
    return UsageError(f"{what}; set XDG_CACHE_HOME to a folder that can be written")

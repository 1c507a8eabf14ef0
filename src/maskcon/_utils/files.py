"""Atomic and durable file writes: sync, rename, and full disks noticed early."""

from __future__ import annotations

import contextlib
import errno
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO

from maskcon._utils.errors import MaskconError
from maskcon._utils.failpoints import failpoint

_NO_RESERVING = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)  # of file systems that cannot set room aside


def write_synced(path: Path, data: bytes) -> None:
    """Write a file and wait until the disk has it."""
    with path.open("wb") as file:
        file.write(data)
        sync_file(file)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file that replaces `path` after the block; a kill or an error leaves the old content."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("w+b") as file:
            yield file
            sync_file(file)
        failpoint("file-before-rename")
        temporary.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if not isinstance(error, OSError):
            raise
        reason = error.strerror or error
        raise MaskconError(f"could not write {path}: {reason}; what was there is intact") from error
    sync_folder(path.parent)


def write_atomically(path: Path, *pieces: bytes) -> None:
    """Replace a file; a reader, or a kill, finds the old content or the new."""
    with replacing(path) as file:
        file.writelines(pieces)


def sync_file(file: IO[bytes]) -> None:
    """Wait until the disk has all that was written to this open file."""
    file.flush()
    os.fsync(file.fileno())


def write_all(file: io.FileIO, data: bytes) -> None:
    """Write all of it to a file opened with buffering=0.

    What a buffer could not write it would try to write once more on closing, and that error would hide the first.
    """
    left = memoryview(data)
    while left:  # the system may take only a part of it
        left = left[file.write(left) :]


def reserve(file: IO[bytes], size: int) -> None:
    """Claim the room of an open file now, so that a full disk is noticed before the work; nothing where none can be."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            if error.errno not in _NO_RESERVING:
                raise


def sync_folder(folder: Path) -> None:
    """Make a rename last: the folder's own entry must reach the disk too."""
    with contextlib.suppress(OSError):  # some systems cannot sync folders
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

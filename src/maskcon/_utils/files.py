"""Atomic and durable file writes: sync, rename, full disks noticed early; checksums; points where tests kill."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, BinaryIO

from maskcon._utils.errors import CorruptFileError, MaskconError, UsageError

SUMS = "SHA256SUMS"  # of the files in its folder; `sha256sum -c` reads it
INTACT, CHANGED, LOST = "intact", "has changed", "has been lost"

FAILPOINT = "MASKCON_FAILPOINT"  # variable that names the point where a test ends the process
_NO_RESERVING = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)  # file systems that cannot reserve space


def write_synced(path: Path, data: bytes) -> None:
    """Write a file and wait until it is on the disk."""
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


def checksums(contents: Mapping[str, bytes]) -> bytes:
    """Return the sha256 of each file's content, as `sha256sum -c` reads it."""
    lines = (f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in contents.items())
    return "".join(lines).encode()


def read_checksums(data: bytes) -> dict[str, str]:
    """Read the lines of `checksums`; ValueError where one is damaged."""
    sums = {}
    for line in data.decode("ascii").removesuffix("\n").split("\n"):
        digest, separator, name = line.partition("  ")
        if not separator or len(digest) != 64:
            raise ValueError(f"bad line {line[:80]!r}")
        sums[name] = digest
    return sums


def file_states(folder: Path, required: Iterable[str] = (), what: str = "the folder") -> dict[str, str]:
    """Compare the files of a folder with its `SHA256SUMS`; empty if it has none.

    Args:
        required: files that must be listed.
        what: the folder holds, for messages.

    Returns:
        `INTACT`, `CHANGED` or `LOST` by file name, or that a required file is not listed.
    """
    path = folder / SUMS
    try:
        listed = read_checksums(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise CorruptFileError(
            f"{path} cannot be read ({error}); delete it to use {what} unchecked"
        ) from None
    states = dict.fromkeys(set(required) - listed.keys(), f"has no checksum in {SUMS}, which has changed")
    for name, digest in listed.items():
        try:
            with (folder / name).open("rb") as file:
                same = hashlib.file_digest(file, "sha256").hexdigest() == digest
            states[name] = INTACT if same else CHANGED
        except FileNotFoundError:
            states[name] = LOST
        except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
            raise UsageError(f"cannot read {folder / name}: {getattr(error, 'strerror', error)}") from error
    return states


def sync_file(file: IO[bytes]) -> None:
    """Wait until everything written to this open file is on the disk."""
    file.flush()
    os.fsync(file.fileno())


def write_all(file: io.FileIO, data: bytes) -> None:
    """Write all data to a file opened with buffering=0.

    A buffer would retry on closing what it could not write, and that error would hide the first.
    """
    left = memoryview(data)
    while left:  # the system may accept only a part
        left = left[file.write(left) :]


def reserve(file: IO[bytes], size: int) -> None:
    """Reserve disk space for an open file, so that a full disk is noticed early; no-op where unsupported."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            if error.errno not in _NO_RESERVING:
                raise


def sync_folder(folder: Path) -> None:
    """Make renames durable: write the folder's own entries to the disk."""
    with contextlib.suppress(OSError):  # some systems cannot sync folders
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def file_digest(path: Path, algorithm: str) -> str:
    """Return the checksum of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()


def failpoint(name: str) -> None:
    """Exit if the environment variable names this point; ``name:3`` means the third time it is reached."""
    wanted, _, turn = os.environ.get(FAILPOINT, "").partition(":")
    if wanted == name:
        _passed[name] = _passed.get(name, 0) + 1
        if _passed[name] >= int(turn or 1):
            os._exit(99)


_passed: dict[str, int] = {}

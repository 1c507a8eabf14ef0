"""Atomic and durable writes, checksums, folder locks, and failpoints for tests.

The kernel releases a lock when its process dies. `one_at_a_time` waits for other processes, `FolderLock` refuses to
start beside another run.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, BinaryIO, Self

from maskcon._utils.errors import CorruptFileError, MaskconError, UsageError
from maskcon._utils.paths import check_regular

try:
    import fcntl
except ImportError:  # Windows: folders are not locked there
    fcntl = None  # type: ignore[assignment]

SUMS = "SHA256SUMS"  # of the files in its folder; `sha256sum -c` reads it
INTACT, CHANGED, LOST = "intact", "has changed", "has been lost"

FAILPOINT = "MASKCON_FAILPOINT"  # environment variable: the point where a test ends the process
# from file systems that cannot reserve space or sync folders
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS, errno.EBADF)


def write_synced(path: Path, data: bytes) -> None:
    """Write a file and wait until it is on the disk."""
    with path.open("wb") as file:
        file.write(data)
        sync_file(file)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file that replaces `path` after the block, unless killed or on an error."""
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
    try:
        sync_folder(path.parent)
    except OSError as error:
        raise MaskconError(
            f"{path} was written, but a power loss may undo that: {error.strerror}; rerun the same command"
        ) from error


def write_atomically(path: Path, *pieces: bytes) -> None:
    """Replace a file; readers find the old content or the new, also after a kill."""
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
        what: content of the folder, for messages.

    Returns:
        By file name: `INTACT`, `CHANGED`, `LOST`, or the text that a required file is not listed.
    """
    path = folder / SUMS
    try:
        check_regular(path)
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
            check_regular(folder / name)
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
    """Reserve disk space for an open file where supported; finds a full disk early."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise


def sync_folder(folder: Path) -> None:
    """Make renames durable: wait until the folder's entries are on the disk."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:  # Windows opens no folders; elsewhere it is writable but not readable
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
    finally:
        os.close(handle)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents if absent; they survive a power loss."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def file_digest(path: Path, algorithm: str) -> str:
    """Return the checksum of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()


def failpoint(name: str) -> None:
    """Exit if the variable FAILPOINT names this point; ``name:3``: the third time."""
    wanted, _, turn = os.environ.get(FAILPOINT, "").partition(":")
    if wanted == name:
        _passed[name] = _passed.get(name, 0) + 1
        if _passed[name] >= int(turn or 1):
            os._exit(99)


_passed: dict[str, int] = {}


@contextlib.contextmanager
def one_at_a_time(folder: Path, on_wait: Callable[[], None] | None = None) -> Iterator[bool]:
    """Wait for the lock of this folder and hold it inside the block.

    The lock is not reentrant: locking the same folder again inside the block waits forever.

    Args:
        on_wait: called once, before waiting for another process.

    Yields:
        Whether the lock is held; some network file systems cannot lock a folder.
    """
    if fcntl is None:
        yield False
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            if on_wait is not None:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    on_wait()
            fcntl.flock(handle, fcntl.LOCK_EX)  # returns at once where the lock is held already
            is_locked = True
        except OSError:
            is_locked = False
        yield is_locked
    finally:
        os.close(handle)  # releases the lock


class FolderLock:
    """Lock a folder inside the block; refuse one that is locked already.

    Args:
        busy: message for a locked folder, with the way out; by default for another run.
    """

    def __init__(self, folder: Path, busy: str | None = None) -> None:
        self.folder = folder
        self._busy = busy or f"another run or explorer is writing to {folder}; wait for it"
        self._handle: int | None = None

    def __enter__(self) -> Self:
        path = self.folder / ".lock"
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NONBLOCK", 0), 0o644)
        except OSError as error:
            raise UsageError(
                f"cannot open {path}: {error.strerror}; remove it, or choose another --out"
            ) from None
        if fcntl is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(handle)
                if isinstance(error, BlockingIOError):
                    reason = f"{self._busy}, or"
                else:
                    reason = f"{self.folder} cannot be locked ({error.strerror});"
                raise UsageError(f"{reason} choose another --out") from None
        self._handle = handle
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handle is not None:
            os.close(self._handle)  # releases the lock
            self._handle = None

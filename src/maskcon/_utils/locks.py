"""Advisory locks on folders; the kernel releases them when their process dies.

`one_at_a_time` waits for other processes, `FolderLock` refuses to start beside another run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from maskcon._utils.errors import UsageError

try:
    import fcntl
except ImportError:  # Windows: folders are not locked there
    fcntl = None  # type: ignore[assignment]


@contextmanager
def one_at_a_time(folder: Path, waiting: Callable[[], None] | None = None) -> Iterator[bool]:
    """Wait for the lock of this folder and hold it inside the block.

    The lock is not reentrant: asking for the same folder again inside the block waits forever.

    Args:
        waiting: called once, before waiting for another process.

    Yields:
        Whether the lock is held; some network file systems cannot lock a folder.
    """
    if fcntl is None:
        yield False
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            if waiting is not None:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    waiting()
            fcntl.flock(handle, fcntl.LOCK_EX)  # returns at once where the lock is held already
            certain = True
        except OSError:
            certain = False
        yield certain
    finally:
        os.close(handle)  # releases the lock


class FolderLock:
    """Lock of a run folder; a second run there is refused."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
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
                    reason = f"another run or explorer is writing to {self.folder}; wait for it, or"
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

"""One process at a time in a folder that several may fill: the others wait, and then find the work done."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: nobody waits there
    fcntl = None  # type: ignore[assignment]


@contextmanager
def one_at_a_time(folder: Path, waiting: Callable[[], None] | None = None) -> Iterator[bool]:
    """Wait for the turn in this folder and keep it while inside; the kernel ends the turn of a process that dies.

    waiting: called once where another process has the turn, before the wait for it.

    Yields whether the turn is certain: some network file systems cannot lock a folder, and then nobody waits.
    Turns do not nest: asking for the same folder again inside would wait for ever.
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
            fcntl.flock(handle, fcntl.LOCK_EX)  # one that is held already is held on
            certain = True
        except OSError:
            certain = False
        yield certain
    finally:
        os.close(handle)  # ends the turn

"""One process at a time in a folder that several may fill: the others wait, and then find the work done."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: nobody waits there
    fcntl = None  # type: ignore[assignment]


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[bool]:
    """Wait for the turn in this folder and keep it while inside; the kernel ends the turn of a process that dies.

    Yields whether the turn is certain: some network file systems cannot lock a folder, and then nobody waits.
    Turns do not nest: asking for the same folder again inside would wait for ever.
    """
    if fcntl is None:
        yield False
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            certain = True
        except OSError:
            certain = False
        yield certain
    finally:
        os.close(handle)  # ends the turn

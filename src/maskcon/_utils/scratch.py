"""Scratch folders, cleaned up also after killed processes."""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from maskcon._utils.locks import one_at_a_time

try:
    import fcntl
except ImportError:  # Windows: what a killed process left stays there
    fcntl = None  # type: ignore[assignment]

YOUNG_SECONDS = 60.0  # a folder may be that young and not locked yet by the process that made it


@contextmanager
def scratch_beside(target: Path) -> Iterator[Path]:
    """Create a private folder beside `target`, and remove those of killed processes.

    Its name is hidden and begins with that of `target`. A process holds the lock of its folder until it ends, so a
    folder that can be locked is abandoned.
    """
    prefix = f".{target.name}-scratch-"
    for left in target.parent.glob(f"{glob.escape(prefix)}*"):
        _remove_if_abandoned(left)
    with (
        tempfile.TemporaryDirectory(prefix=prefix, dir=target.parent) as scratch,
        one_at_a_time(Path(scratch)),
    ):
        yield Path(scratch)


def _remove_if_abandoned(folder: Path) -> None:
    if fcntl is None or folder.is_symlink() or not folder.is_dir():
        return
    with suppress(OSError):  # in use, not ours to remove, or gone already
        if time.time() - folder.stat().st_mtime < YOUNG_SECONDS:
            return
        handle = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
        finally:
            os.close(handle)

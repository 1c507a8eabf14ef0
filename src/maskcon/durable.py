"""Files that are still there after a power cut: contents and names waited for until the disk has them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def write_synced(path: Path, data: bytes) -> None:
    """Write a file and wait until the disk has it."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make a rename last: the folder's own entry must reach the disk too."""
    with contextlib.suppress(OSError):  # some systems cannot sync folders
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

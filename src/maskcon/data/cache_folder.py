"""Names of folders in the cache: they change with the files they stand for."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path


def place_key(folder: Path) -> str:
    """Tells folders apart by where they are."""
    return hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:12]


def files_key(root: Path, paths: Sequence[str], salt: str) -> str:
    """Changes when a file is added, removed, replaced or touched; looks at sizes and times only."""
    digest = hashlib.sha256(salt.encode())
    for path in paths:
        try:
            status = (root / path).stat()
            stamp = f"{status.st_size};{status.st_mtime_ns}"
        except OSError:  # whoever opens it says why
            stamp = "none"
        digest.update(os.fsencode(path) + f"\0{stamp};".encode())
    return digest.hexdigest()[:20]

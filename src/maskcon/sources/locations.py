"""Where data sets and caches live on this machine."""

from __future__ import annotations

import os
from pathlib import Path

DATA_VARIABLE = "MASKCON_DATA"


def data_root(root: Path | None = None) -> Path:
    """The folder of downloaded data sets: the one given, else $MASKCON_DATA, else the user's cache."""
    if root is not None:
        return Path(root).expanduser()
    named = os.environ.get(DATA_VARIABLE)
    return Path(named).expanduser() if named else cache_root() / "data"


def cache_root() -> Path:
    """Our folder in the user's cache: $XDG_CACHE_HOME/maskcon, else ~/.cache/maskcon."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    # the XDG rules say that a relative path there is to be ignored
    base = Path(named) if named and Path(named).is_absolute() else Path.home() / ".cache"
    return base / "maskcon"

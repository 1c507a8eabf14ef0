"""Folders of datasets, weights and caches on this machine."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from maskcon._utils.errors import BREAKDOWNS, UsageError

DATA_VARIABLE = "MASKCON_DATA"


def data_root(root: Path | None = None) -> Path:
    """Return the dataset folder: `root`, else $MASKCON_DATA, else the user's cache."""
    named = os.environ.get(DATA_VARIABLE) if root is None else root
    if not named:
        return cache_root() / "data"
    try:
        return Path(named).expanduser()
    except RuntimeError as error:
        raise UsageError(f"cannot use {str(named)!r} as the data folder: there is no such user") from error


def cache_root() -> Path:
    """Return maskcon's cache folder: $XDG_CACHE_HOME/maskcon, else ~/.cache/maskcon."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    # XDG: relative paths are ignored
    if named and Path(named).is_absolute():
        return Path(named) / "maskcon"
    try:
        return Path.home() / ".cache" / "maskcon"
    except RuntimeError as error:
        raise UsageError(f"no home folder is known; set {DATA_VARIABLE} and XDG_CACHE_HOME") from error


def resolved(path: Path) -> Path:
    """Return the full path without links; a loop of links stays."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return path.absolute()


def has_file(path: Path | os.DirEntry[str]) -> bool:
    """Tell whether this is a file; unlike `Path.is_file`, False if access is denied."""
    return stat.S_ISREG(_mode(path))


def has_folder(path: Path) -> bool:
    """Tell whether this is a folder; unlike `Path.is_dir`, False if access is denied."""
    return stat.S_ISDIR(_mode(path))


def exists(path: Path) -> bool:
    """Tell whether a path exists; unlike `Path.exists`, False if access is denied."""
    return _mode(path) != 0


def _mode(path: Path | os.DirEntry[str]) -> int:
    """Return the mode of a file, 0 if there is none; raise if the disk fails."""
    try:
        return os.stat(path).st_mode  # noqa: PTH116
    except ValueError:  # a NUL in the name
        return 0
    except OSError as error:
        if error.errno in BREAKDOWNS:
            raise
        return 0


def check_regular(path: Path) -> None:
    """Raise `OSError` for a pipe, socket or device, which might block forever."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # a folder fails when it is opened
        raise OSError(errno.EINVAL, "not a regular file")

"""How a loop becomes machine code, kept on disk where that can be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])

# numpy's rules: a division by zero gives inf, not an exception, which would keep loops from being vectorised
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


def inner(function: Function) -> Function:
    """A part of an entry: compiled, and kept, with it."""
    return cast("Function", numba.njit(**_OPTIONS)(function))


def entry(signature: str) -> Callable[[Function], Function]:
    """A loop called from Python: compiled at import for this one signature, or read from the cache on disk.

    The cache lies beside the module or in the user's cache folder. Where neither can be written, or the disk is
    full, each process compiles anew.
    """

    def compiled(function: Function) -> Function:
        try:
            return cast("Function", numba.njit(signature, cache=True, **_OPTIONS)(function))
        except (OSError, RuntimeError):  # RuntimeError: no place for a cache at all
            return cast("Function", numba.njit(signature, **_OPTIONS)(function))

    return compiled

"""How a loop becomes machine code, kept on disk where that can be."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])

# numpy's rules: a division by zero gives inf, not an exception, which would keep loops from being vectorised
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


def inner(function: Function) -> Function:
    """A part of an entry: compiled, and kept, with it."""
    return cast("Function", numba.njit(**_OPTIONS)(function))


class Entry:
    """A loop called from Python, compiled for one signature when it is first wanted, or read from the cache on disk.

    The cache lies beside the module or in the user's cache folder. Where neither can be written, or the disk is
    full, each process compiles anew.
    """

    def __init__(self, function: Callable[..., Any], signature: str) -> None:
        self._function, self._signature = function, signature

    @cached_property
    def ready(self) -> Callable[..., None]:
        """The machine code. Asking for it takes seconds, the first time on a machine."""
        try:
            made = numba.njit(self._signature, cache=True, **_OPTIONS)(self._function)
        except (OSError, RuntimeError):  # RuntimeError: no place for a cache at all
            made = numba.njit(self._signature, **_OPTIONS)(self._function)
        return cast("Callable[..., None]", made)

    def __call__(self, *arguments: Any) -> None:
        self.ready(*arguments)


def entry(signature: str) -> Callable[[Callable[..., Any]], Entry]:
    """Makes an `Entry` of a function; numba's names of the types of its arguments, which are written into."""

    def of(function: Callable[..., Any]) -> Entry:
        return Entry(function, f"void({signature})")

    return of

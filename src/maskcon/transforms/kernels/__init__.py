"""Numba loops over the pixels of single images, called by `maskcon.transforms.compiled`.

Each module contains everything its entry calls: numba's cache on disk only notices changes of the entry's own file.
Each image is processed alone and in a fixed order, so that its bits depend on the image and its numbers only.
Arithmetic is that of the tensor code in float32; "fastmath" is off.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])

# numpy's rules: division by zero gives inf; an exception would prevent vectorisation
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


def inner(function: Function) -> Function:
    """Compile a function that only entries call."""
    return cast("Function", numba.njit(**_OPTIONS)(function))


class Entry:
    """A loop called from Python, compiled on first use or read from numba's cache on disk.

    Where the cache cannot be written, each process compiles anew.
    """

    def __init__(self, function: Callable[..., Any], signature: str) -> None:
        self._function, self._signature = function, signature

    @cached_property
    def ready(self) -> Callable[..., None]:
        """The machine code; takes seconds on first use on a machine."""
        try:
            made = numba.njit(self._signature, cache=True, **_OPTIONS)(self._function)
        except (OSError, RuntimeError):  # RuntimeError: no folder for a cache
            made = numba.njit(self._signature, **_OPTIONS)(self._function)
        return cast("Callable[..., None]", made)

    def __call__(self, *arguments: Any) -> None:
        self.ready(*arguments)


def entry(signature: str) -> Callable[[Callable[..., Any]], Entry]:
    """Declare an `Entry` by numba's types of its arguments."""

    def of(function: Callable[..., Any]) -> Entry:
        return Entry(function, f"void({signature})")

    return of

"""Numba loops over the pixels of single images, called by `maskcon.transforms.compiled`.

Each module contains everything its entry calls: numba's cache on disk only notices changes of the entry's own file.
Each image is processed alone and in a fixed order, so that its bits depend on the image and its numbers only.
Arithmetic is that of the tensor code in float32; "fastmath" is off. Importing a module compiles its entry, which takes
seconds on first use on a machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])

# numpy's rules: division by zero gives inf; an exception would prevent vectorisation
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


def inner(function: Function) -> Function:
    """Compile a function that only entries call."""
    return cast("Function", numba.njit(**_OPTIONS)(function))


def entry(signature: str) -> Callable[[Function], Function]:
    """Compile a loop for numba's types of its arguments, or read it from numba's cache on disk."""

    def compiled(function: Function) -> Function:
        try:
            made = numba.njit(f"void({signature})", cache=True, **_OPTIONS)(function)
        except (OSError, RuntimeError):  # no cache can be written: each process compiles anew
            made = numba.njit(f"void({signature})", **_OPTIONS)(function)
        return cast("Function", made)

    return compiled

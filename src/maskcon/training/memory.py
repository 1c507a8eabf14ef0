"""Memory that a CPU step frees stays with the process for the next one.

A step frees and asks again for the same hundreds of megabytes. The C library hands large pieces back to the system each
time, and every page of them must then be mapped and cleared anew: a tenth of a ResNet-18 step of 128 images at 32
pixels, and its largest maps are beyond what the library ever learns to keep by itself.
"""

from __future__ import annotations

import ctypes
import os
import platform

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4  # numbers of malloc.h
_NEVER, _NO_PIECES = 2**31 - 1, 0
_USUAL_PIECES, _LARGEST_THRESHOLD = 65536, 32 << 20  # where the library itself ends up under large pieces


def keep_freed_memory() -> bool:
    """Let freed memory stay with this process; whether that could be arranged.

    Only with glibc, and not where the environment has settings of its own. The process then holds on to the most that
    it ever needed at once, and somewhat more, until `give_back_memory`.
    """
    library = _glibc()
    if library is None:
        return False
    return bool(library.mallopt(_MMAP_MAX, _NO_PIECES) and library.mallopt(_TRIM_THRESHOLD, _NEVER))


def give_back_memory() -> None:
    """Return to the usual ways, and what is free now to the system."""
    library = _glibc()
    if library is not None:
        library.mallopt(_MMAP_MAX, _USUAL_PIECES)
        library.mallopt(_MMAP_THRESHOLD, _LARGEST_THRESHOLD)
        library.mallopt(_TRIM_THRESHOLD, 2 * _LARGEST_THRESHOLD)
        library.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    chosen = any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ)
    return None if chosen or platform.libc_ver()[0] != "glibc" else ctypes.CDLL(None)

"""How many files a test leaves open."""

from __future__ import annotations

import os


def lowest_free_handle() -> int:
    """Return the number that the next opened file gets: it grows with every file left open."""
    handle = os.dup(0)
    os.close(handle)
    return handle

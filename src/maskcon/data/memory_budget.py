"""A limit on the memory that decoding takes, shared by all threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class MemoryBudget:
    """Bytes that may be in use at a time; a thread waits until its share is free."""

    def __init__(self, size: int) -> None:
        self.size = self._free = size
        self._changed = threading.Condition()

    @contextmanager
    def reserve(self, size: int) -> Iterator[None]:
        """Hold `size` bytes inside the block; raise `ValueError` if they exceed the whole budget.

        Not reentrant: a thread that reserves twice may wait for itself.
        """
        if size > self.size:
            raise ValueError(
                f"needs about {size >> 20:,} MB to decode, more than {self.size >> 20:,} MB; "
                "shrink it, or save it as a baseline JPEG"
            )
        with self._changed:
            self._changed.wait_for(lambda: self._free >= size)
            self._free -= size
        try:
            yield
        finally:
            with self._changed:
                self._free += size
                self._changed.notify_all()

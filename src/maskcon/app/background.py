"""Slow work in the background, one task after the other; each starts when its result is first requested."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

Report = Callable[[int, int], None]


class StoppedError(Exception):
    """The server is shutting down."""


class Background:
    """Runs named tasks once and keeps their results."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "maskcon-background")
        self._lock, self._stopping = threading.Lock(), threading.Event()
        self._futures: dict[str, Future[Any]] = {}
        self._progress: dict[str, tuple[int, int]] = {}

    def ask(self, name: str, work: Callable[[Report], Any]) -> Any:
        """Return the result of `work`, or None until it is done; errors of the work are raised here."""
        with self._lock:
            future = self._futures.get(name)
            if future is None:
                future = self._pool.submit(self._run, name, work)
                self._futures[name] = future
        return future.result() if future.done() else None

    def progress(self, name: str) -> tuple[int, int]:
        """Return how much of the work is done, and how much there is."""
        return self._progress.get(name, (0, 1))

    def close(self) -> None:
        """Stop the running task at its next progress report; drop the others."""
        self._stopping.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _run(self, name: str, work: Callable[[Report], Any]) -> Any:
        result = work(lambda done, total: self._report(name, done, total))
        self._progress[name] = (1, 1)
        return result

    def _report(self, name: str, done: int, total: int) -> None:
        if self._stopping.is_set():
            raise StoppedError
        self._progress[name] = done, total

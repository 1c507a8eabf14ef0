"""kinds.csv of the newest state, written a moment after each edit and at the end."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from maskcon._utils.errors import MaskconError
from maskcon._utils.files import write_atomically
from maskcon.data.kinds_file import kinds_bytes
from maskcon.discovery.columns import Snapshot

QUIET_SECONDS = 1.0  # without an edit, before the file is written
BY_HAND = (
    "kinds.csv was changed by hand and is left alone; the next `maskcon explore` or `maskcon kinds` takes its "
    "changes over. The edits of the page are safe."
)


class CsvWriter:
    """Writes the file in a thread of its own; one that was changed by hand meanwhile is left to the next start.

    Args:
        newest: returns the revision and the state.
        record: writes to the journal; it holds the checksum of the file before the file is there.

    Attributes:
        problem: why the file was not written, for people; tried again at the next edit.
    """

    def __init__(
        self, path: Path, newest: Callable[[], tuple[int, Snapshot]], record: Callable[[dict[str, Any]], None]
    ) -> None:
        self.problem: str | None = None
        self._path, self._newest, self._record = path, newest, record
        self._known = path.read_bytes() if path.is_file() else b""
        self._writing, self._changed, self._closing = threading.Lock(), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="maskcon-csv", daemon=True)
        self._thread.start()

    def touch(self) -> None:
        """Say that there is a newer state."""
        self._changed.set()

    def save(self) -> None:
        """Write the file, if it is not there already and was not changed by hand."""
        with self._writing:
            revision, snapshot = self._newest()
            content = kinds_bytes(snapshot.rows())
            there = self._path.read_bytes() if self._path.is_file() else b""
            if there != content:
                if there not in (b"", self._known):  # `journal.replay` takes it over, by the one written last
                    self.problem = BY_HAND
                    return
                self._record({"csv": hashlib.sha256(content).hexdigest(), "revision": revision})
                write_atomically(self._path, content)
            self._known, self.problem = content, None

    def close(self) -> None:
        """Write the newest state and end the thread."""
        self._closing.set()
        self._changed.set()
        self._thread.join()
        self.save()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._changed.wait()
            self._changed.clear()
            while not self._closing.is_set() and self._changed.wait(QUIET_SECONDS):
                self._changed.clear()
            if not self._closing.is_set():
                try:
                    self.save()
                except (MaskconError, OSError) as error:
                    self.problem = f"kinds.csv cannot be written: {error}. The edits themselves are safe."

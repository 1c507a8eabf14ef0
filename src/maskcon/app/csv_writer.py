"""Write kinds.csv a moment after each edit, and at the end."""

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

QUIET_SECONDS = 1.0  # without a new edit, before the file is written
BY_HAND = (
    "kinds.csv was changed by hand, so it is not overwritten; the next `maskcon explore` or `maskcon kinds` applies "
    "its changes. The edits of the page are safe."
)


class CsvWriter:
    """Writes the file in its own thread, unless it was changed by hand: then the next start applies the changes.

    Args:
        newest: returns the newest revision and state.
        record: appends to the journal, which gets the checksum of the file before the file is written.

    Attributes:
        problem: message to the user on why the file was not written; the next edit tries again.
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
        """Note that there is a newer state."""
        self._changed.set()

    def save(self) -> None:
        """Write the file unless it is up to date or was changed by hand."""
        with self._writing:
            revision, snapshot = self._newest()
            content = kinds_bytes(snapshot.rows())
            current = self._path.read_bytes() if self._path.is_file() else b""
            if current != content:
                if current not in (b"", self._known):  # `journal.replay` applies it at the next start
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

"""Cache of thumbnails: one SQLite file of bounded size, without the oldest. It can be deleted at any time."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from pathlib import Path

MOST_BYTES = 256 << 20
TABLE = "CREATE TABLE IF NOT EXISTS thumbnails (key TEXT PRIMARY KEY, data BLOB NOT NULL)"


class Thumbnails:
    """Encoded images by key; if the folder cannot be written or the file is damaged, it only costs time.

    Example:
        >>> cache = Thumbnails(None)
        >>> cache.put("a/64", b"png"); cache.get("a/64"), cache.get("b/64")
        (b'png', None)
    """

    def __init__(self, path: Path | None, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes, self._lock = most_bytes, threading.Lock()
        try:
            self._file = self._open(path)
        except sqlite3.Error:  # damaged: start a new file; if that fails too, keep them in memory
            with contextlib.suppress(OSError):
                if path is not None:
                    path.unlink()
            try:
                self._file = self._open(path)
            except sqlite3.Error:
                self._file = self._open(None)
        self._bytes = self._total()

    def get(self, key: str) -> bytes | None:
        """Return the image stored under a key, if it is still there."""
        with self._lock, contextlib.suppress(sqlite3.Error):
            found = self._file.execute("SELECT data FROM thumbnails WHERE key = ?", (key,)).fetchone()
            return None if found is None else bytes(found[0])
        return None

    def put(self, key: str, data: bytes) -> None:
        """Store an image; the oldest make room."""
        with self._lock, contextlib.suppress(sqlite3.Error):
            self._file.execute("INSERT OR REPLACE INTO thumbnails VALUES (?, ?)", (key, data))
            self._bytes += len(data)
            while self._bytes > self._most_bytes:
                oldest = "SELECT rowid FROM thumbnails ORDER BY rowid LIMIT 1000"
                self._file.execute(f"DELETE FROM thumbnails WHERE rowid IN ({oldest})")
                self._bytes = self._total()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()

    def _open(self, path: Path | None) -> sqlite3.Connection:
        file = sqlite3.connect(path or ":memory:", isolation_level=None, check_same_thread=False, timeout=1)
        file.execute("PRAGMA journal_mode = MEMORY")
        file.execute("PRAGMA synchronous = OFF")
        file.execute(TABLE)
        return file

    def _total(self) -> int:
        found = self._file.execute("SELECT COALESCE(SUM(LENGTH(data)), 0) FROM thumbnails").fetchone()
        return int(found[0])

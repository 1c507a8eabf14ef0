"""The journal of a run: one JSON object per line, appended at each event.

A line is handed to the operating system in one write, so a killed process loses nothing that `write` returned
from; at worst the very last line is torn, which reading ignores and opening repairs.

    with Journal("runs/first/journal.jsonl") as journal:
        journal.write("step", step=1, epoch=0, loss=6.93)
    read_journal("runs/first/journal.jsonl")  # [{"kind": "step", "step": 1, "epoch": 0, "loss": 6.93}]
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from maskcon._utils.errors import CorruptFileError, UsageError
from maskcon._utils.files import write_all

TAIL_BYTES = 8_192  # holds the last dozens of lines


class Journal:
    """Append-only writer of a run's events. Opening an existing file repairs a torn last line.

    Kinds in use: `start` (the settings), `step` (step, epoch, loss, learning_rate, ...), `evaluation` (step,
    epoch, recall, effective_rank), `warning` (message) and `end`; any other is welcome.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._file: io.FileIO | None = None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._open()
        except OSError as error:
            raise UsageError(
                f"cannot write the journal {self.path}: {error.strerror}; choose another output folder"
            ) from error
        try:
            _repair_end(self._opened(), self.path)
        except BaseException:
            self.close()
            raise

    def write(self, kind: str, **values: Any) -> None:
        """Append one event. NaN and infinities become null; 0-d arrays and tensors become plain numbers."""
        line = _encoded({"kind": kind, **values})
        file = self._opened()
        size_before = file.seek(0, os.SEEK_END)
        try:
            write_all(file, line)
        except OSError:
            # Disk full: half a line would spoil the next one, which would be glued to it.
            with contextlib.suppress(OSError):
                file.truncate(size_before)
            raise

    def position(self) -> int:
        """Bytes written so far, on the disk; kept with a checkpoint, it says where the journal stood."""
        file = self._opened()
        os.fsync(file.fileno())
        return file.seek(0, os.SEEK_END)

    def rewind(self, position: int) -> None:
        """Drop what was written after `position`, to resume from its checkpoint.

        Kept lines keep their bytes, so the journal of a resumed run continues as an undisturbed one would.
        """
        file = self._opened()
        if file.seek(0, os.SEEK_END) > position:
            file.truncate(position)
            _repair_end(file, self.path)  # a position of another journal may lie within a line

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _open(self) -> None:
        # Unbuffered: each write is one system call. Append mode: no handle can overwrite earlier lines.
        self._file = io.FileIO(os.fspath(self.path), "a+")

    def _opened(self) -> io.FileIO:
        if self._file is None:
            raise ValueError(f"the journal {self.path} is closed")
        return self._file


def read_journal(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Read all events of a journal, oldest first; a torn last line is skipped."""
    return [event for _, event in _parsed_lines(Path(path))]


def read_ends(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The first event and some of the last: where a run stands, however long its journal has grown.

    None where there is no journal yet; a line that is not whole is passed over.
    """
    try:
        with Path(path).open("rb") as file:
            first = file.readline()
            begin = file.tell()
            file.seek(max(begin, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            lines = [first, *file.read().split(b"\n")]
    except OSError:
        return []
    return [event for line in lines if (event := _decoded(line)) is not None]


def _parsed_lines(path: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Each whole line as (its bytes with the newline, its event)."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise UsageError(f"no journal at {path}; is this the folder of a run?") from None
    except OSError as error:
        raise UsageError(f"cannot read the journal {path}: {error.strerror}") from error
    raw_lines = content.split(b"\n")
    if raw_lines[-1] == b"":
        raw_lines.pop()
    for number, raw_line in enumerate(raw_lines, start=1):
        event = _decoded(raw_line)
        if event is not None:
            yield raw_line + b"\n", event
        elif number < len(raw_lines):
            # Only the end of a file can be torn by a kill; damage further up is something else.
            raise CorruptFileError(
                f"{path}: line {number} is not a journal entry; restore the file or delete this line"
            )


def _decoded(raw_line: bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(raw_line)
    except (ValueError, RecursionError):  # ValueError covers bad JSON, bad UTF-8 and over-long integers
        return None
    return event if isinstance(event, dict) and isinstance(event.get("kind"), str) else None


def _encoded(event: Mapping[str, Any]) -> bytes:
    # ASCII escapes: also a file name that is not valid UTF-8 (lone surrogates) survives.
    return (json.dumps(_plain(event), allow_nan=False) + "\n").encode("ascii")


def _plain(value: Any) -> Any:
    """The value in what JSON can hold."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if hasattr(value, "tolist"):  # numpy and torch, scalars and arrays, without importing either
        return _plain(value.tolist())
    raise TypeError(f"a journal holds plain values, not {type(value).__name__}: {value!r}")


def _repair_end(file: io.FileIO, path: Path) -> None:
    """Cut off a torn last line; one that only lacks its newline gets it."""
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        return
    content = path.read_bytes()
    body = content[:-1] if content.endswith(b"\n") else content
    start_of_last = body.rfind(b"\n") + 1
    if _decoded(body[start_of_last:]) is None:
        file.truncate(start_of_last)
    elif not content.endswith(b"\n"):
        file.write(b"\n")

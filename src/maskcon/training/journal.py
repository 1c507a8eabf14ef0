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
import os
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from maskcon._utils.errors import CorruptFileError, MaskconError, UsageError
from maskcon._utils.files import make_folder, sync_folder, write_all

FAILED = "failed"  # kind of the last event of a run that stopped at NaN or Inf
TAIL_BYTES = 8_192  # holds the last dozens of lines


class Journal(contextlib.AbstractContextManager["Journal"]):
    """Append-only writer of a run's events; opening repairs a torn last line.

    Kinds in use: `start` (the settings), `step` (step, epoch, loss, learning_rate, ...), `evaluation` (step,
    epoch, recall), `warning` (message), `changed` (what differs since a resume), `failed` and `end`.

    Args:
        path: None in processes that write nothing.
        tensorboard: whether to write the curves for TensorBoard too, beside the journal.
    """

    def __init__(self, path: str | os.PathLike[str] | None, *, tensorboard: bool = False) -> None:
        self.path = Path(path or os.devnull)
        self._file: io.FileIO | None = None
        self._board: Any = None
        self._writes = path is not None
        if not self._writes:
            return
        try:
            make_folder(self.path.parent)
            # Unbuffered: each write is one system call. Append mode: no handle can overwrite earlier lines.
            self._file = io.FileIO(os.fspath(self.path), "a+")
        except OSError as error:
            raise UsageError(
                f"cannot write the journal {self.path}: {error.strerror}; choose another output folder"
            ) from error
        try:
            sync_folder(self.path.parent)  # a line is of no use in a file without a name
            _repair_end(self._opened(), self.path)
        except BaseException:
            self.close()
            raise
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(self.path.with_name("tensorboard")))

    def write(self, kind: str, **values: Any) -> None:
        """Append one event.

        NaN and infinities become null, 0-d arrays and tensors plain numbers.
        """
        if not self._writes:
            return
        line = _encoded({"kind": kind, **values})
        file = self._opened()
        with self._explain_errors():
            size_before = file.seek(0, os.SEEK_END)
            try:
                write_all(file, line)
            except OSError:
                # Disk full: half a line would spoil the next one, which would be glued to it.
                with contextlib.suppress(OSError):
                    file.truncate(size_before)
                raise
        if self._board is not None:
            for name, value in _scalars(kind, values).items():
                self._board.add_scalar(name, value, values["step"])

    def position(self) -> int:
        """Sync the journal and return its length, which a checkpoint keeps."""
        if not self._writes:
            return 0
        file = self._opened()
        with self._explain_errors():
            os.fsync(file.fileno())
            return file.seek(0, os.SEEK_END)

    def rewind(self, position: int) -> None:
        """Drop what was written after `position`, to resume from its checkpoint.

        Kept lines keep their bytes, so the journal of a resumed run continues as an undisturbed one would.
        """
        if not self._writes:
            return
        file = self._opened()
        if file.seek(0, os.SEEK_END) > position:
            file.truncate(position)
            _repair_end(file, self.path)  # a position of another journal may lie within a line

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        for target in (self._file, self._board):
            if target is not None:
                target.close()
        self._file = self._board = None

    def __exit__(self, *_: object) -> None:
        self.close()

    def _opened(self) -> io.FileIO:
        if self._file is None:
            raise ValueError(f"the journal {self.path} is closed")
        return self._file

    @contextlib.contextmanager
    def _explain_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise MaskconError(
                f"could not write {self.path}: {error.strerror or error}; the last checkpoint is intact. "
                "Free some space and rerun the same command to resume"
            ) from error


def check_tensorboard() -> None:
    """Raise where --tensorboard is set and the package is not installed."""
    if find_spec("tensorboard") is None:
        raise UsageError("--tensorboard needs an extra: pip install 'maskcon[tensorboard]'")


def _scalars(kind: str, values: Mapping[str, Any]) -> dict[str, float]:
    """Return the curves of an event, by their names in TensorBoard."""
    if kind == "step":
        return {f"train/{name}": values[name] for name in ("loss", "learning_rate", "w", "gradient_norm")}
    if kind != "evaluation":
        return {}
    return {f"recall/{k}": share for k, share in values["recall"].items()}


def read_journal(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Read all events of a journal, oldest first; a torn last line is skipped."""
    try:
        lines = Path(path).read_bytes().removesuffix(b"\n").split(b"\n")
    except FileNotFoundError:
        raise UsageError(f"no journal at {path}; is this the folder of a run?") from None
    except OSError as error:
        raise UsageError(f"cannot read the journal {path}: {error.strerror}") from error
    events = [_decoded(line) for line in lines]
    for number, event in enumerate(events[:-1], start=1):
        if event is None:  # only the end of a file can be torn by a kill; damage further up is something else
            raise CorruptFileError(
                f"{path}: line {number} is not a journal entry; restore the file or delete this line"
            )
    return [event for event in events if event is not None]


def read_ends(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Read the first event and some of the last, in constant time.

    Incomplete lines are left out. Returns an empty list if there is no journal yet.
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


def _decoded(raw_line: bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(raw_line)
    except (ValueError, RecursionError):  # ValueError covers bad JSON, bad UTF-8 and over-long integers
        return None
    return event if isinstance(event, dict) and isinstance(event.get("kind"), str) else None


def _encoded(event: Mapping[str, Any]) -> bytes:
    # Read back and written again: JSON has no NaN and no infinities, they become null.
    plain = json.loads(json.dumps(event, default=_plain), parse_constant=lambda _: None)
    # ASCII escapes: also a file name that is not valid UTF-8 (lone surrogates) survives.
    return (json.dumps(plain, allow_nan=False) + "\n").encode("ascii")


def _plain(value: Any) -> Any:
    """Convert a value that JSON does not know."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if hasattr(value, "tolist"):  # numpy and torch, scalars and arrays, without importing either
        return value.tolist()
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

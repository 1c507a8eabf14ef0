"""RunRecorder: writes the events of a run to its journal and to TensorBoard."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from maskcon._utils.errors import MaskconError, UsageError
from maskcon.training.journal import Journal
from maskcon.training.run_folder import JOURNAL


class RunRecorder:
    """Writes to the journal of a run folder, and to TensorBoard; does nothing without a folder."""

    def __init__(self, folder: Path | None, *, tensorboard: bool = False) -> None:
        self.journal = None if folder is None else Journal(folder / JOURNAL)
        self.board = _tensorboard(folder) if tensorboard and folder is not None else None

    def record(self, kind: str, values: Mapping[str, Any]) -> None:
        """Write one event; see `Journal` for the kinds."""
        if self.journal is not None:
            with _clear_when_full(self.journal):
                self.journal.write(kind, **values)
        if self.board is not None:
            _to_board(self.board, kind, values)

    def position(self) -> int:
        """Return the length of the journal, which a checkpoint keeps."""
        if self.journal is None:
            return 0
        with _clear_when_full(self.journal):
            return self.journal.position()

    def rewind(self, position: int) -> None:
        """Drop the events after a checkpoint."""
        if self.journal is not None:
            self.journal.rewind(position)

    def close(self) -> None:
        if self.journal is not None:
            self.journal.close()
        if self.board is not None:
            self.board.close()


@contextmanager
def _clear_when_full(journal: Journal) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise MaskconError(
            f"could not write {journal.path}: {error.strerror or error}; the last checkpoint is intact. "
            "Free some space and rerun the same command to resume"
        ) from error


def check_tensorboard() -> None:
    """Raise where --tensorboard is set and the package is not installed."""
    if find_spec("tensorboard") is None:
        raise UsageError("--tensorboard needs an extra: pip install 'maskcon[tensorboard]'")


def _tensorboard(folder: Path) -> Any:
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder / "tensorboard"))


def _to_board(board: Any, kind: str, values: Mapping[str, Any]) -> None:
    step = values.get("step")
    if kind == "step":
        for name in ("loss", "learning_rate", "w", "gradient_norm"):
            board.add_scalar(f"train/{name}", values[name], step)
    elif kind == "evaluation":
        for k, share in values["recall"].items():
            board.add_scalar(f"recall/{k}", share, step)

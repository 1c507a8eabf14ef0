"""What `maskcon index` and `maskcon search` share: where an index is kept, and whose it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from maskcon.api import Run

STORE_HELP = "Keep the index in PostgreSQL with pgvector instead of a folder. A password is better given as PGPASSWORD."
FOLDER = "index"  # in the run's folder


def encoder_digest(run: Run) -> str:
    """By it an index knows whose it is."""
    return run.encoder_digest()


def default_folder(run: Run) -> Path:
    return run.folder / FOLDER


def default_name(run: Run) -> str:
    """Of an index in a store: the name of the run's folder."""
    return run.folder.resolve().name

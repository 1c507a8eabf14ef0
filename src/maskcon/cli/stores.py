"""Where `maskcon index` keeps an index and `search` finds it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from maskcon.api import Run

STORE_HELP = (
    "Keep the index in PostgreSQL with pgvector instead of a folder. Prefer PGPASSWORD for a password."
)
FOLDER = "index"  # in the run's folder


def default_folder(run: Run) -> Path:
    """Return the folder of a run's index."""
    return run.folder / FOLDER


def default_name(run: Run) -> str:
    """Return the name of a run's index in a database: that of the run's folder."""
    return run.folder.resolve().name

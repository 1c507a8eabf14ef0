"""A kinds file for the miniature data set."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from maskcon.data import Dataset
from maskcon.data.kinds_file import KindRow, write_kinds
from tests.miniature import miniature, with_paths

DATA = with_paths(miniature())


def write_names(
    folder: Path, rows: Iterable[int], data: Dataset = DATA, junk: Iterable[int] = (), name: str = "kinds.csv"
) -> str:
    """Give these training images the names of their fine labels, as a user who knows them would."""
    assert data.train.paths is not None
    assert data.train.fine is not None
    assert data.fine_names is not None
    left_out = set(junk)
    write_kinds(
        folder / name,
        [
            KindRow(
                data.train.paths[row],
                data.coarse_names[data.train.coarse[row]],
                data.fine_names[data.train.fine[row]],
                role="junk" if row in left_out else "",
            )
            for row in [*rows, *left_out]
        ],
    )
    return str(folder / name)

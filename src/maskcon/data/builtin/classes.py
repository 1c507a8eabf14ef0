"""Read class tables of the built-in datasets from CSV files beside this module."""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files

from maskcon.data.dataset import Grouping


@cache
def read_table(name: str) -> tuple[dict[str, str], ...]:
    """Read the rows of a class table, one per fine label, in the order of the labels.

    Columns: fine_name, coarse (label from 0) and coarse_name; tables may have more.
    """
    text = files("maskcon.data.builtin").joinpath(f"{name}.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


@cache
def read_grouping(name: str) -> Grouping:
    """Read which coarse class each fine class of a dataset belongs to.

    >>> read_grouping("fashion_mnist").coarse_names
    ('upper body', 'full length', 'footwear', 'bag')
    """
    rows = read_table(name)
    names = {int(row["coarse"]): row["coarse_name"] for row in rows}
    return Grouping(
        coarse_names=tuple(names[coarse] for coarse in range(len(names))),
        fine_names=tuple(row["fine_name"] for row in rows),
        coarse_of=tuple(int(row["coarse"]) for row in rows),
    )


def count_notes(title: str, counts: tuple[int, int], official: tuple[int, int]) -> tuple[str, ...]:
    """Return a note if (train, test) counts are not those of the official dataset."""
    if counts == official:
        return ()
    return (
        f"{counts[0]} + {counts[1]} images were found; the official {title} has {official[0]} + {official[1]}",
    )

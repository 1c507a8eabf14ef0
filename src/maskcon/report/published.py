"""Recall that the paper prints, read from `published_main.csv` and `published_appendix.csv`.

Misprints that the paper itself exposes are corrected in these files and listed in `CORRECTIONS`. Where the main text
and the appendix print different digits for the same run, both are kept and `disagreements` lists them.
"""

from __future__ import annotations

import csv
import importlib.resources
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from maskcon.config.presets import METHOD_SETTINGS

KS = ("1", "2", "5", "10")


@dataclass(frozen=True)
class PublishedRow:
    """One row of a printed table. w and tau are None where the method has none or the paper does not say."""

    method: str
    w: float | None
    tau: float | None
    percent: tuple[float, ...]  # recall@1, 2, 5, 10


@dataclass(frozen=True)
class Correction:
    """A misprint: what is printed where, the corrected value, and the evidence."""

    source: str
    place: str
    printed: str
    corrected: str
    because: str


CORRECTIONS = (
    Correction("cifartoy-good", "appendix, CoIns w=1, recall@2", "8.26", "85.26", "the main text has 85.26"),
    Correction("cifar100", "main, MaskCon's gain over SupCE", "18.17", "18.27", "65.52 - 47.25"),
    Correction("imagenet32", "main, MaskCon's gain over SupCE", "6.86", "6.85", "19.08 - 12.23"),
)
# Implausible, but the paper offers no corrected value: kept as printed.
DOUBTS = {
    "imagenet32": "SupCE's recall@2 of 14.15 equals SelfCon's; it may have been copied.",
    "cifartoy-good": "The main table repeats the bad split's SelfCon and SupFINE rows for the good split.",
}


def published_recall(source: str) -> Mapping[str, Mapping[str, float]] | None:
    """Return the paper's recall by method for a dataset, or None if it has no such table.

    >>> published_recall("cifar100")["maskcon"]["1"]
    0.6552
    """
    rows = main_rows(source)
    return {
        row.method: {k: round(value / 100, 4) for k, value in zip(KS, row.percent, strict=True)}
        for row in rows
    } or None


def main_rows(source: str) -> tuple[PublishedRow, ...]:
    """Return the rows of a dataset's main table, in printed order, with the w and tau behind them.

    >>> [(row.method, row.w, row.tau) for row in main_rows("sop-split2")][-1]
    ('maskcon', 0.5, 0.05)
    """
    rows = []
    for row in _read("published_main.csv").get(source, ()):
        chosen = METHOD_SETTINGS.get(("paper", source, row.method), {})
        w, tau = (chosen.get(key, (None, ""))[0] for key in ("w", "tau"))
        rows.append(PublishedRow(row.method, w, tau, row.percent))
    return tuple(rows)


def appendix_rows(source: str) -> tuple[PublishedRow, ...]:
    """Return the rows of a dataset's appendix table, in printed order; none for ImageNet."""
    return _read("published_appendix.csv").get(source, ())


def disagreements(source: str) -> list[str]:
    """List the runs whose digits differ between the main text and the appendix, one line each.

    >>> disagreements("cifar100")
    ['supce: 47.25, 61.24, 77.78, 87.01 in the main text, 47.25, 61.24, 77.78, 87.00 in the appendix']
    """
    # The appendix lists SupCon and SupCE as Grafit and CoIns with w = 1.
    same = {"supcon": ("grafit", 1.0, None), "supce": ("coins", 1.0, None)}
    appendix = {(row.method, row.w, row.tau): row.percent for row in appendix_rows(source)}
    found: list[str] = []
    for row in main_rows(source):
        twin = appendix.get(same.get(row.method, (row.method, row.w, row.tau)), row.percent)
        if twin != row.percent:
            ours, theirs = (", ".join(f"{value:.2f}" for value in percent) for percent in (row.percent, twin))
            found.append(f"{row.method}: {ours} in the main text, {theirs} in the appendix")
    return found


@cache
def _read(name: str) -> dict[str, tuple[PublishedRow, ...]]:
    """Read one of the CSV files: source -> rows."""
    text = importlib.resources.files("maskcon.report").joinpath(name).read_text(encoding="utf-8")
    tables: dict[str, tuple[PublishedRow, ...]] = {}
    for line in csv.DictReader(text.splitlines()):
        w, tau = (float(line[key]) if line.get(key) else None for key in ("w", "tau"))
        row = PublishedRow(line["method"], w, tau, tuple(float(line[f"recall_{k}"]) for k in KS))
        tables[line["source"]] = (*tables.get(line["source"], ()), row)
    return tables

"""Recall that the paper prints, read from `published_main.csv` and `published_appendix.csv`.

Misprints that the paper's own numbers reveal are corrected in these files. Where main text and appendix print different
digits for the same run, both are kept. `published_notes.csv` lists both, and doubtful numbers.
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


def published_notes(source: str, table: str) -> list[str]:
    """List misprints, contradictions and doubts about a dataset's table, "main" or "appendix".

    >>> published_notes("cifar100", "main")[0]
    "Corrected: main, MaskCon's gain over SupCE: printed 18.17, should be 18.27 (65.52 - 47.25)."
    """
    lines = _lines("published_notes.csv")
    return [line["note"] for line in lines if line["source"] == source and line["table"] in (table, "both")]


@cache
def _lines(name: str) -> list[dict[str, str]]:
    text = importlib.resources.files("maskcon.report").joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


@cache
def _read(name: str) -> dict[str, tuple[PublishedRow, ...]]:
    """Read one of the tables: source -> rows."""
    tables: dict[str, tuple[PublishedRow, ...]] = {}
    for line in _lines(name):
        w, tau = (float(line[key]) if line.get(key) else None for key in ("w", "tau"))
        row = PublishedRow(line["method"], w, tau, tuple(float(line[f"recall_{k}"]) for k in KS))
        tables[line["source"]] = (*tables.get(line["source"], ()), row)
    return tables

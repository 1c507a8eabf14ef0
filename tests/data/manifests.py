"""Manifests as CSV and Parquet, and the images that they list."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.data.miniatures import write_picture

Rows = list[tuple[str, ...]]


def pictures(folder: Path, *names: str) -> None:
    for number, name in enumerate(names):
        write_picture(folder / name, (20, 16), (number * 9 % 256, 30, 200))


def usual_rows(count: int = 8) -> Rows:
    return [(f"{label}/{number}.png", label) for label in ("cat", "dog") for number in range(count)]


def write_csv(path: Path, rows: Rows, header: str = "path,coarse", **options: str) -> Path:
    text = io.StringIO()
    csv.writer(text, lineterminator=options.get("end", "\n")).writerows([header.split(","), *rows])
    path.write_text(text.getvalue(), encoding="utf-8", newline="")
    return path


def write_parquet(path: Path, rows: Rows, header: str = "path,coarse") -> Path:
    pq.write_table(pa.table(dict(zip(header.split(","), zip(*rows, strict=True), strict=True))), path)
    return path

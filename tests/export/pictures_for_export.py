"""Pictures of many sizes, as a data set with a canvas."""

from __future__ import annotations

from pathlib import Path

from maskcon.data import Dataset, load
from tests.finished_run import write_photo


def photo_data(folder: Path) -> Dataset:
    for number in range(16):
        name = f"{'cat' if number % 2 else 'dog'}/{number:02}.png"
        write_photo(folder / name, number, (40 + 9 * number, 60))
    return load(str(folder), image_size=24)

"""Folders of images, one for each class, and what was read from them."""

from __future__ import annotations

from pathlib import Path

from maskcon.data import Dataset
from maskcon.data.packing import Progress, pack
from maskcon.data.photos import assemble, plan_photos, read_path
from tests.data.miniatures import write_picture


def write_classes(root: Path, *classes: str, count: int = 10, size: tuple[int, int] = (20, 16)) -> Path:
    for number, name in enumerate(classes):
        for picture in range(count):
            write_picture(root / name / f"{picture}.png", size=size, colour=(number * 40, picture * 10, 7))
    return root


def all_paths(data: Dataset) -> set[str]:
    return {*(data.train.paths or ()), *(data.test.paths or ())}


def load_photos(
    path: Path,
    *,
    image_size: int | None = None,
    strict: bool = False,
    progress: Progress | None = None,
    cache: Path | None = None,
) -> Dataset:
    """`load` with a cache of its own."""
    plan = plan_photos(read_path(path), image_size=image_size, strict=strict, cache=cache, looking=progress)
    return assemble(plan, pack(plan, progress))

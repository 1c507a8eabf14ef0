"""A dataset that names its images in lists of its own: from the list to decoded train and test parts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from maskcon._utils.errors import DataError
from maskcon._utils.paths import has_file
from maskcon._utils.text import counted
from maskcon.data.dataset import Dataset, Grouping
from maskcon.data.decoding import checked_side
from maskcon.data.folder_layout import some
from maskcon.data.packing import Packed, PackJob, PicturePlan, usual_cache


@dataclass(frozen=True)
class Listed:
    """One image: its path below the dataset's folder (with `/`), its fine class, its id."""

    path: str
    fine: int
    index: int


@dataclass(frozen=True)
class Listing:
    """All that a dataset's lists say, before an image is opened."""

    name: str
    title: str
    folder: Path
    family: str
    grouping: Grouping
    train: tuple[Listed, ...]
    test: tuple[Listed, ...]
    notes: tuple[str, ...] = ()


def plan_listing(listing: Listing, *, image_size: int | None = None, strict: bool = False) -> PicturePlan:
    """Find the listed images, to be decoded whole onto image_size x image_size (None: 256).

    An image that is absent or cannot be read is left out, with a line in `notes`, or stops it all if `strict`;
    a part without any is an error.
    """
    side = checked_side(image_size)
    listed = (*listing.train, *listing.test)
    there = present_paths(listing.folder, (image.path for image in listed))
    rows = [row for row, image in enumerate(listed) if image.path in there]
    absent = {row: "no such file" for row, image in enumerate(listed) if image.path not in there}
    _checked_train_count(listing, rows, absent, strict)  # before anything is decoded

    def dataset(packed: Packed) -> Dataset:
        left_out = absent | {rows[place]: why for place, why in packed.failures.items()}
        kept = [rows[place] for place in packed.kept.tolist()]
        train_count = _checked_train_count(listing, kept, left_out, strict)
        images = [listed[row] for row in kept]
        parts = [
            listing.grouping.image_set(
                packed.images[span],
                np.array([image.fine for image in images[span]], dtype=np.int64),
                np.array([image.index for image in images[span]], dtype=np.int64),
                sizes=packed.sizes[span],
                paths=tuple(image.path for image in images[span]),
            )
            for span in (slice(0, train_count), slice(train_count, None))
        ]
        notes = listing.notes
        if named := _named(listing, left_out):
            were = "was" if len(named) == 1 else "were"
            lost = f"{counted(len(named), 'image')} could not be read and {were} left out: {some(named)}"
            notes = (*notes, lost)
        return listing.grouping.dataset(listing.name, listing.family, *parts, notes=notes)

    job = PackJob(
        name=listing.name,
        root=listing.folder,
        paths=tuple(listed[row].path for row in rows),
        side=side,
        channels=3,
        cache=usual_cache(),
    )
    return PicturePlan(job, {listed[row].path: why for row, why in absent.items()}, dataset)


def _named(listing: Listing, left_out: Mapping[int, str]) -> list[str]:
    listed = (*listing.train, *listing.test)
    return [f"{listed[row].path} ({left_out[row]})" for row in sorted(left_out)]


def _checked_train_count(
    listing: Listing, kept: Sequence[int], left_out: Mapping[int, str], strict: bool
) -> int:
    """How many of the kept rows are to train on; there must be some, and some to test on, and all if `strict`."""
    named = _named(listing, left_out)
    if strict and named:
        raise DataError(
            f"{listing.title} in {listing.folder}: {named[0]} cannot be read; {len(named)} such files found. "
            "Repair or replace them, or leave strict off to skip them"
        )
    count = sum(row < len(listing.train) for row in kept)
    for part, size in (("train", count), ("test", len(kept) - count)):
        if not size:
            total = len(listing.train) + len(listing.test)
            lost = f"{len(named)} of {total} are missing or damaged: {some(named, limit=1)}"
            raise DataError(
                f"{listing.title}: {listing.folder} holds no readable image of the {part} part; "
                f"{lost if named else f'all {total} listed are of the other'}"
            )
    return count


def plain_path(path: str, depth: int) -> bool:
    """Is this a relative path of exactly so many plain components, safe to join to a folder?

    >>> plain_path("bicycle_final/1_0.JPG", 2), plain_path("../1_0.JPG", 2), plain_path("1.jpg", 2)
    (True, False, False)
    """
    parts = path.split("/")
    return (
        len(parts) == depth
        and not any(part in ("", ".", "..") for part in parts)
        and path.isprintable()
        and "\\" not in path
    )


def present_paths(folder: Path, paths: Iterable[str]) -> set[str]:
    """The paths of files that are there: one listing a sub-folder is far cheaper than a look at every file."""
    present: set[str] = set()
    for parent in sorted({path.rpartition("/")[0] for path in paths}):
        before = f"{parent}/" if parent else ""
        try:
            with os.scandir(folder / parent) as entries:
                present.update(f"{before}{entry.name}" for entry in entries if has_file(entry))
        except (OSError, ValueError):  # ValueError: a zero byte in the name
            continue  # an absent folder: its images are absent
    return present

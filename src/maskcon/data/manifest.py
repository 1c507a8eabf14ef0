"""A list of the user's images: a CSV or Parquet file with the columns path and coarse, if wanted fine and split.

path,coarse,fine,split
cats/1.jpg,cat,siamese,train
"dogs/rex, old.jpg",dog,poodle,test

Paths start from the folder of the manifest. Other columns are ignored. Without a split, about a fifth of the images
is held out to score on.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from maskcon._utils.errors import DataError, unknown
from maskcon._utils.paths import has_file, resolved
from maskcon._utils.text import counted
from maskcon.data.folder_layout import TEST_NAMES, TRAIN_NAMES, Found, Layout, show
from maskcon.data.image_list import present_paths
from maskcon.data.manifest_rows import FORM, SUFFIXES, Place, Row, read_rows
from maskcon.data.photos import Origin


def is_manifest(path: Path) -> bool:
    """By its name alone.

    >>> is_manifest(Path("photos.csv")), is_manifest(Path("photos"))
    (True, False)
    """
    return path.suffix.lower() in SUFFIXES


def manifest_photos(path: Path) -> tuple[Origin, Layout]:
    """The images that a manifest lists, all of it checked, and how to speak of them."""
    where = show(str(path))
    origin = Origin(
        name=show(path.stem),
        where=where,
        kind=f"manifest-{hashlib.sha256(os.fsencode(path.name)).hexdigest()[:8]}",
        inside=where,
        expected=f"one line per image in {where}: {FORM}",
        test_part="test rows",
        root=folder_of(path),
    )
    return origin, read_manifest(path)


def read_manifest(path: Path) -> Layout:
    """All rows, checked, as images to train on and to test on, each sorted by path.

    The first thing wrong is an error that names its line: a label that is empty or at odds with another line, a path
    that is listed twice, leads out of the folder with `..`, or names no file.
    """
    rows = _Rows(Place(path))
    for row in read_rows(path, ("path", "coarse")):
        rows.add(row)
    return rows.layout()


def folder_of(path: Path) -> Path:
    """Where a manifest's paths start from: its own folder, also if it was reached by a link from elsewhere."""
    return resolved(path).parent


def listed_images(path: Path) -> Iterator[tuple[str, str]]:
    """The path and the coarse label ("" where there is none) of every row: for embedding, which needs no labels."""
    place, folder = Place(path), folder_of(path)
    for row in read_rows(path, ("path",)):
        yield checked_path(place, row, folder), row.coarse


def checked_path(place: Place, row: Row, folder: Path) -> str:
    """The path in its plainest form; relative to the manifest's folder wherever it lies below it."""
    text = row.path
    if not text.strip():
        raise place.wrong(row.number, "path is empty")
    if ".." in text and ".." in Path(text).parts:
        raise place.wrong(
            row.number,
            f"{show(text)!r} leads out of the folder with '..'; write the full path, or put the manifest above "
            "the images",
        )
    if text[0] in "./\\" or text[-1] == "/" or "//" in text or "/." in text or os.sep != "/":
        plain = Path(text)
        if plain.is_absolute() and plain.is_relative_to(folder):
            plain = plain.relative_to(folder)
        return plain.as_posix()
    return text


@dataclass
class _Rows:
    """The rows so far, and what the next ones must agree with."""

    place: Place
    paths: dict[str, int] = field(default_factory=dict)  # -> line
    coarse: list[str] = field(default_factory=list)
    fine: list[str] = field(default_factory=list)
    splits: list[str] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)  # one string object a label, however many rows
    coarse_of: dict[str, tuple[str, int]] = field(default_factory=dict)  # fine label -> coarse label, line
    first_split: tuple[str, int] | None = None
    folder: Path = field(init=False)

    def __post_init__(self) -> None:
        self.folder = folder_of(self.place.path)

    def add(self, row: Row) -> None:
        path = checked_path(self.place, row, self.folder)
        if path in self.paths:
            raise self._wrong(row, f"{show(path)!r} is listed on {self.place.at(self.paths[path])} already")
        if not row.coarse:
            raise self._wrong(row, f"{show(path)!r} has no coarse label")
        self._check_split(row)
        self._check_fine(row)
        self.paths[path] = row.number
        self.coarse.append(self.names.setdefault(row.coarse, row.coarse))
        self.fine.append(self.names.setdefault(row.fine, row.fine))
        self.splits.append(self.names.setdefault(row.split, row.split))

    def _check_split(self, row: Row) -> None:
        if row.split and row.split not in (*TRAIN_NAMES, *TEST_NAMES):
            raise self._wrong(row, str(unknown("split", row.split, (*TRAIN_NAMES, *TEST_NAMES))))
        if self.first_split is None:
            self.first_split = row.split, row.number
        if bool(row.split) != bool(self.first_split[0]):
            has, has_not = ("has a", "none") if row.split else ("has no", "one")
            other = self.place.at(self.first_split[1])
            raise self._wrong(row, f"{has} split, and {other} has {has_not}; give every row one, or none")

    def _check_fine(self, row: Row) -> None:
        if not row.fine:
            return
        coarse, number = self.coarse_of.setdefault(row.fine, (row.coarse, row.number))
        if coarse != row.coarse:
            raise self._wrong(
                row,
                f"fine label {show(row.fine)!r} lies in coarse class {show(row.coarse)!r}, but on "
                f"{self.place.at(number)} in {show(coarse)!r}; a fine label belongs to one coarse class",
            )

    def _wrong(self, row: Row, what: str) -> DataError:
        return self.place.wrong(row.number, what)

    def layout(self) -> Layout:
        if not self.paths:
            raise DataError(f"{show(str(self.place.path))} lists no image; write one line per image: {FORM}")
        splits = set(self.splits)
        used_test = next((name for name in TEST_NAMES if name in splits), None)
        if used_test is not None and splits.isdisjoint(TRAIN_NAMES):
            raise DataError(f"no row of {show(str(self.place.path))} has the split 'train'")
        layout = Layout(has_parts=used_test is not None)
        self._check_files()
        spare: dict[str, int] = {}
        for path, coarse, fine, split in zip(self.paths, self.coarse, self.fine, self.splits, strict=True):
            if split in ("", *TRAIN_NAMES) or split == used_test:
                layout.files.append(Found(path, bool(split) and split == used_test, coarse, fine or None))
            else:
                spare[split] = spare.get(split, 0) + 1
        self._check_fine_of_parts(layout.files)
        for name, count in spare.items():
            layout.notes.append(
                f"not used beside {used_test!r}: {counted(count, 'row')} of the split {name!r}"
            )
        layout.files.sort(key=lambda found: (found.is_test, found.path))
        return layout

    def _check_files(self) -> None:
        """Every file must be there: a list and a folder that do not belong together should not be half trained on."""
        present = present_paths(self.folder, self.paths)
        # a file system may know a name under another form of its letters than the one it lists
        absent = [path for path in self.paths if path not in present and not has_file(self.folder / path)]
        if absent:
            more = f"; {len(absent):,} of {len(self.paths):,} files are missing" if len(absent) > 1 else ""
            slash = " (write paths with /)" if "\\" in absent[0] else ""
            raise self.place.wrong(
                self.paths[absent[0]],
                f"no such file: {show(absent[0])!r}{slash}, looked for from {show(str(self.folder))}{more}",
            )

    def _check_fine_of_parts(self, files: Iterable[Found]) -> None:
        """Fine labels are for all of a part or for none of it."""
        first: dict[bool, Found] = {}
        for found in files:
            other = first.setdefault(found.is_test, found)
            if (found.fine is None) != (other.fine is None):
                without, having = (found, other) if found.fine is None else (other, found)
                raise self.place.wrong(
                    self.paths[without.path],
                    f"{show(without.path)!r} has no fine label, and {show(having.path)!r} on "
                    f"{self.place.at(self.paths[having.path])} has one; give all rows of a part one, or none",
                )

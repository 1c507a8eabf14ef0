"""Read a manifest: a CSV or Parquet file that lists images and their labels.

path,coarse,fine,split
cats/1.jpg,cat,siamese,train
"dogs/rex, old.jpg",dog,poodle,test

The columns fine and split are optional, others are ignored. Paths start from the folder of the manifest. Without a
split, about a fifth of the images is held out to score on. Rows are streamed.
"""

from __future__ import annotations

import csv
import difflib
import hashlib
import itertools
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from maskcon._utils.errors import DataError, unknown
from maskcon._utils.paths import check_regular, has_file, resolved
from maskcon._utils.text import counted
from maskcon.data.folder_layout import (
    TEST_NAMES,
    TRAIN_NAMES,
    FineLabels,
    Found,
    Layout,
    show,
    some,
)

COLUMNS = ("path", "coarse", "fine", "split")
PARQUET = ".parquet"
SUFFIXES = (".csv", ".tsv", PARQUET)
DELIMITERS = ",;\t"  # spreadsheets write semicolons where the comma is the decimal separator
LONGEST_LINE_BYTES = 1 << 20
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
FORM = "path,coarse[,fine][,split]"


class Row(NamedTuple):
    """One listed image; "" where its column is absent or empty."""

    number: int  # of the line, or of the row in a Parquet file
    path: str
    coarse: str
    fine: str
    split: str


@dataclass(frozen=True)
class Place:
    """A manifest, for messages that name a line or row in it."""

    path: Path

    @property
    def is_parquet(self) -> bool:
        return self.path.suffix.lower() == PARQUET

    def at(self, number: int) -> str:
        return f"{'row' if self.is_parquet else 'line'} {number:,}"

    def wrong(self, number: int, what: str) -> DataError:
        return DataError(f"{show(str(self.path))}, {self.at(number)}: {what}")


def is_manifest(path: Path) -> bool:
    """Tell by its name alone whether this is a manifest.

    >>> is_manifest(Path("photos.csv")), is_manifest(Path("photos"))
    (True, False)
    """
    return path.suffix.lower() in SUFFIXES


def folder_of(path: Path) -> Path:
    """Return the folder that paths start from: the file's own, links resolved."""
    return resolved(path).parent


def listed_images(path: Path) -> Iterator[tuple[str, str]]:
    """Yield path and coarse label ("" if absent) per row, for embedding."""
    place, folder = Place(path), folder_of(path)
    for row in read_rows(path, ("path",)):
        yield _checked_path(place, row, folder), row.coarse


def read_manifest(path: Path) -> Layout:
    """Read and check all rows; train before test, each sorted by path.

    The first fault is an error that names its line: a label that is empty or contradicts another line; a path that is
    listed twice, leads out of the folder with `..`, or does not exist.
    """
    where, place, folder = show(str(path)), Place(path), folder_of(path)
    line_of: dict[str, int] = {}
    files: list[Found] = []
    splits: list[str] = []
    names: dict[str, str] = {}  # one string object per label, however many rows
    fine_labels = FineLabels()
    first: Row | None = None
    for row in read_rows(path, ("path", "coarse")):
        first = first or row
        name = _checked_path(place, row, folder)
        if name in line_of:
            raise place.wrong(row.number, f"{show(name)!r} is listed on {place.at(line_of[name])} already")
        if not row.coarse:
            raise place.wrong(row.number, f"{show(name)!r} has no coarse label")
        if row.split and row.split not in (*TRAIN_NAMES, *TEST_NAMES):
            raise place.wrong(row.number, str(unknown("split", row.split, (*TRAIN_NAMES, *TEST_NAMES))))
        if bool(row.split) != bool(first.split):
            other, has, other_has = place.at(first.number), *(("a", "none") if row.split else ("no", "one"))
            raise place.wrong(
                row.number, f"has {has} split, and {other} has {other_has}; give every row one, or none"
            )
        if row.fine and (conflict := fine_labels.conflict(row.fine, row.coarse, place.at(row.number))):
            raise place.wrong(row.number, conflict)
        line_of[name] = row.number
        coarse, fine, split = (names.setdefault(text, text) for text in row[2:])
        files.append(Found(name, split in TEST_NAMES, coarse, fine or None))
        splits.append(split)
    if not files:
        raise DataError(f"{where} lists no image; write one line per image: {FORM}")
    present = set(splits)
    used_test = next((name for name in TEST_NAMES if name in present), None)
    if used_test is not None and not present.intersection(TRAIN_NAMES):
        raise DataError(f"no row of {where} has the split 'train'")
    _check_files(place, folder, line_of)
    spare = Counter(split for split in splits if split in TEST_NAMES and split != used_test)
    kept = [
        found for found, split in zip(files, splits, strict=True) if not found.is_test or split == used_test
    ]
    _check_fine_of_parts(place, kept, line_of)
    return Layout(
        name=show(path.stem),
        root=folder,
        where=where,
        expected=f"one line per image in {where}: {FORM}",
        test_part="test rows",
        kind=f"manifest-{hashlib.sha256(os.fsencode(path.name)).hexdigest()[:8]}",
        files=sorted(kept, key=lambda found: (found.is_test, found.path)),
        has_parts=used_test is not None,
        notes=[
            f"not used beside {used_test!r}: {counted(count, 'row')} of the split {name!r}"
            for name, count in spare.items()
        ],
    )


def _checked_path(place: Place, row: Row, folder: Path) -> str:
    """Normalise a path; make it relative if it lies below the manifest's folder."""
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


def _check_files(place: Place, folder: Path, line_of: dict[str, int]) -> None:
    """Refuse missing files: the manifest may belong to another folder."""
    absent = [path for path in line_of if not has_file(folder / path)]
    if absent:
        more = f"; {len(absent):,} of {len(line_of):,} files are missing" if len(absent) > 1 else ""
        slash = " (write paths with /)" if "\\" in absent[0] else ""
        raise place.wrong(
            line_of[absent[0]],
            f"no such file: {show(absent[0])!r}{slash}, looked for from {show(str(folder))}{more}",
        )


def _check_fine_of_parts(place: Place, files: Sequence[Found], line_of: dict[str, int]) -> None:
    """Require fine labels for all of a part or for none of it."""
    first: dict[bool, Found] = {}
    for found in files:
        other = first.setdefault(found.is_test, found)
        if (found.fine is None) != (other.fine is None):
            without, having = (found, other) if found.fine is None else (other, found)
            raise place.wrong(
                line_of[without.path],
                f"{show(without.path)!r} has no fine label, and {show(having.path)!r} on "
                f"{place.at(line_of[having.path])} has one; give all rows of a part one, or none",
            )


def read_rows(path: Path, needed: Sequence[str]) -> Iterator[Row]:
    """Yield every row; a missing column of `needed` or a malformed line is an error."""
    place = Place(path)
    try:
        check_regular(path)
        for number, texts in (_parquet_rows if place.is_parquet else _csv_rows)(place, needed):
            name, coarse, fine, split = texts
            yield Row(number, name, coarse.strip(), fine.strip(), split.strip().lower())
    except OSError as error:
        raise DataError(f"cannot read {show(str(path))}: {error.strerror or _on_one_line(error)}") from None


def _on_one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:120]


def _csv_rows(place: Place, needed: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    with place.path.open("rb") as file:
        lines = _lines(file, place)
        first = next(lines, "")
        reader = csv.reader(itertools.chain([first], lines), delimiter=delimiter_of(first), strict=True)
        header: list[str] = []
        columns: list[int | None] = []
        while True:
            number = reader.line_num + 1  # first line of the row: quoted fields may span several
            try:
                values = next(reader)
            except StopIteration:
                break
            except csv.Error as error:
                advice = "is a quote never closed, or not doubled inside a quoted name?"
                raise place.wrong(number, f"{error}; {advice}") from None
            if not values:
                continue  # an empty line
            if not header:
                header, columns = values, _places(place, values, needed)
                continue
            if len(values) != len(header):
                raise place.wrong(
                    number,
                    f"{len(values)} fields where the first line names {len(header)} columns; "
                    'put a name that holds the separator in quotes: "a,b.jpg"',
                )
            yield number, ["" if column is None else values[column] for column in columns]
        if not header:
            raise DataError(f"{show(str(place.path))} is empty; the first line must name the columns: {FORM}")


def _lines(file: BinaryIO, place: Place) -> Iterator[str]:
    number = 0
    while line := file.readline(LONGEST_LINE_BYTES):
        number += 1
        if number == 1 and line.startswith(UTF16_MARKS):
            raise place.wrong(1, "the file is UTF-16; save it as CSV UTF-8")
        if len(line) == LONGEST_LINE_BYTES and not line.endswith(b"\n"):
            raise place.wrong(number, f"longer than {LONGEST_LINE_BYTES:,} bytes; is this a list of images?")
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            raise place.wrong(number, "not valid UTF-8; save the file as CSV UTF-8") from None


def delimiter_of(header: str) -> str:
    """Return the separator that makes path a column of the header."""
    for delimiter in DELIMITERS:
        if "path" in (name.strip().strip('"').lower() for name in header.split(delimiter)):
            return delimiter
    return DELIMITERS[0]


def _places(place: Place, header: Sequence[str], needed: Sequence[str]) -> list[int | None]:
    """Find the place of each of COLUMNS; None for optional absent ones."""
    names = [name.strip().lower() for name in header]
    for name in COLUMNS:
        if names.count(name) > 1:
            raise place.wrong(1, f"the column {name!r} is there {names.count(name)} times")
    missing = [name for name in needed if name not in names]
    if missing:
        near = difflib.get_close_matches(missing[0], names, n=1)
        hint = f" (is it {show(header[names.index(near[0])])!r}?)" if near else ""
        first = "" if place.is_parquet else "the first line must name the columns, "
        raise DataError(
            f"{show(str(place.path))} has no column {' and no column '.join(repr(name) for name in missing)}{hint}; "
            f"it has {some(list(header))}: {first}{FORM}"
        )
    return [names.index(name) if name in names else None for name in COLUMNS]


def _parquet_rows(place: Place, needed: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(place.path) as file:
            header = list(file.schema_arrow.names)
            columns = [None if at is None else header[at] for at in _places(place, header, needed)]
            number = 0
            for batch in file.iter_batches(columns=[name for name in columns if name is not None]):
                empty = [None] * batch.num_rows
                values = [empty if name is None else batch.column(name).to_pylist() for name in columns]
                for row in zip(*values, strict=True):
                    number += 1
                    yield number, [_text(place, number, *pair) for pair in zip(COLUMNS, row, strict=True)]
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise DataError(f"{show(str(place.path))} cannot be read as Parquet: {_on_one_line(error)}") from None


def _text(place: Place, number: int, column: str, value: object) -> str:
    """Return text unchanged, whole numbers as text, null as ""."""
    if value is None:
        return ""
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return str(value)
    raise place.wrong(
        number, f"{column} is {str(value)[:40]!r} ({type(value).__name__}); text or whole numbers are needed"
    )

"""The rows of a manifest, CSV or Parquet, one at a time: never more of the file in memory than a block of it."""

from __future__ import annotations

import csv
import difflib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from maskcon._utils.errors import DataError
from maskcon.data.folder_layout import show, some

COLUMNS = ("path", "coarse", "fine", "split")
PARQUET = ".parquet"
SUFFIXES = (".csv", ".tsv", PARQUET)
DELIMITERS = ",;\t"  # spreadsheets write semicolons where the comma is for decimals
LONGEST_LINE_BYTES = 1 << 20
BATCH_ROWS = 1 << 16
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
FORM = "path,coarse[,fine][,split]"


@dataclass(frozen=True, slots=True)
class Row:
    """One image as it is listed; "" where its column is absent or empty."""

    number: int  # of the line, or of the row in a Parquet file
    path: str
    coarse: str
    fine: str
    split: str


@dataclass(frozen=True)
class Place:
    """A manifest, for messages that name a place in it."""

    path: Path

    @property
    def is_parquet(self) -> bool:
        return self.path.suffix.lower() == PARQUET

    def at(self, number: int) -> str:
        return f"{'row' if self.is_parquet else 'line'} {number:,}"

    def wrong(self, number: int, what: str) -> DataError:
        return DataError(f"{show(str(self.path))}, {self.at(number)}: {what}")


def read_rows(path: Path, needed: Sequence[str]) -> Iterator[Row]:
    """Every row in order; a column of `needed` that is absent, and a line that is no row, are errors."""
    place = Place(path)
    try:
        yield from _parquet_rows(place, needed) if place.is_parquet else _csv_rows(place, needed)
    except OSError as error:
        raise DataError(f"cannot read {show(str(path))}: {error.strerror or _on_one_line(error)}") from None


def _on_one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:120]


def _csv_rows(place: Place, needed: Sequence[str]) -> Iterator[Row]:
    with place.path.open("rb") as file:
        lines = _lines(file, place)
        begin = list(itertools.islice(lines, 1))
        reader = csv.reader(
            itertools.chain(begin, lines), delimiter=_delimiter(begin[0] if begin else ""), strict=True
        )
        header: list[str] | None = None
        columns: list[int | None] = []
        while True:
            number = reader.line_num + 1  # where the row begins: quoted fields may go over several lines
            try:
                values = next(reader)
            except StopIteration:
                break
            except csv.Error as error:
                raise place.wrong(number, _in_words(error)) from None
            if not values:
                continue  # an empty line
            if header is None:
                header = values
                columns = _places(place, header, needed)
                continue
            if len(values) != len(header):
                raise place.wrong(
                    number,
                    f"{len(values)} fields where the first line names {len(header)} columns; "
                    'put a name that holds the separator in quotes: "a,b.jpg"',
                )
            yield _row(number, ["" if column is None else values[column] for column in columns])
        if header is None:
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


def _delimiter(header: str) -> str:
    """The separator with which the header names a path."""
    for delimiter in DELIMITERS:
        if "path" in (name.strip().strip('"').lower() for name in header.split(delimiter)):
            return delimiter
    return DELIMITERS[0]


def _in_words(error: csv.Error) -> str:
    text = str(error)
    if "field limit" in text or "unexpected end" in text:
        return f"a quote that is never closed, or a field of more than {csv.field_size_limit():,} characters"
    if "new-line character" in text:
        return "a line break of its own kind; save the file with usual line ends"
    return f"{text}; quotes inside a quoted name are written twice"


def _places(place: Place, header: Sequence[str], needed: Sequence[str]) -> list[int | None]:
    """Where each of COLUMNS is; None for one that is absent and not needed."""
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


def _parquet_rows(place: Place, needed: Sequence[str]) -> Iterator[Row]:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(place.path) as file:
            header = list(file.schema_arrow.names)
            columns = _places(place, header, needed)
            wanted = [header[column] for column in columns if column is not None]
            start = 0
            for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=wanted):
                by_name = {name: batch.column(name).to_pylist() for name in wanted}
                for offset in range(batch.num_rows):
                    number = start + offset + 1
                    given = [
                        None if column is None else by_name[header[column]][offset] for column in columns
                    ]
                    texts = [_text(place, number, *pair) for pair in zip(COLUMNS, given, strict=True)]
                    yield _row(number, texts)
                start += batch.num_rows
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise DataError(f"{show(str(place.path))} cannot be read as Parquet: {_on_one_line(error)}") from None


def _text(place: Place, number: int, column: str, value: object) -> str:
    """Text as it is, whole numbers as text, nothing as ""."""
    if value is None:
        return ""
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return str(value)
    raise place.wrong(
        number, f"{column} is {str(value)[:40]!r} ({type(value).__name__}); text or whole numbers are needed"
    )


def _row(number: int, values: Sequence[str]) -> Row:
    path, coarse, fine, split = values
    return Row(number, path, coarse.strip(), fine.strip(), split.strip().lower())

"""Read and write kinds.csv: the kind of every image, for people to edit.

Columns: path, coarse, kind, confidence (0 to 1), role (typical, borderline, outlier or junk). Kinds that were found but
not named yet are called "kind 1", "kind 2", ... within their coarse class; any other text is a name. Further columns
are ignored, so that a spreadsheet may hold notes. Semicolons and tabs are read as separators too.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

from maskcon._utils.errors import DataError, UsageError
from maskcon._utils.files import write_atomically
from maskcon._utils.paths import check_regular
from maskcon._utils.text import FORMULA_STARTS, printable
from maskcon.data.manifest import delimiter_of

Role = Literal["typical", "borderline", "outlier", "junk", ""]
COLUMNS = ("path", "coarse", "kind", "confidence", "role")
REQUIRED = ("path", "coarse", "kind")
UNNAMED = re.compile(r"kind [1-9]\d*")
LONGEST_NAME = 200


@dataclass(frozen=True)
class KindRow:
    """One image; `kind` is empty where it has none."""

    path: str
    coarse: str
    kind: str
    confidence: float | None = None
    role: Role = ""
    line: int = 0  # in the file; 0 for rows that were not read from one
    question: str = ""  # why `maskcon ask` asks about it; empty in kinds.csv

    @property
    def name(self) -> str | None:
        """Return the name given by the user; None for a number ("kind 1"), no kind, or junk."""
        named = self.kind and self.role != "junk" and UNNAMED.fullmatch(self.kind) is None
        return self.kind if named else None


def read_kinds(path: Path) -> list[KindRow]:
    """Read and check the rows of a kinds file, in their order.

    Raises:
        DataError: the file cannot be used; the message names the line and what to change.
    """
    try:
        check_regular(path)
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise DataError(f"{path}, line {line}: not UTF-8; save it as CSV UTF-8") from None
    delimiter = delimiter_of(text.partition("\n")[0])
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows: list[KindRow] = []
    seen: dict[str, int] = {}
    try:
        header = [cell.strip().lower() for cell in next(reader, [])]
        _check_header(path, header)
        for cells in reader:
            if any(cell.strip() for cell in cells):
                row = _row(path, reader.line_num, header, cells)
                if row.path in seen:
                    raise _wrong(
                        path, row.line, f"{row.path} is in line {seen[row.path]} already; remove one"
                    )
                seen[row.path] = row.line
                rows.append(row)
    except csv.Error as error:
        raise _wrong(path, reader.line_num, f"{error}; is a quote missing?") from None
    if not rows:
        raise DataError(f"{path} has no rows below its header")
    return rows


def write_kinds(path: Path, rows: Iterable[KindRow], *, questions: bool = False) -> None:
    """Write a kinds file atomically; see `kinds_bytes`."""
    write_atomically(path, kinds_bytes(rows, questions=questions))


def kinds_bytes(rows: Iterable[KindRow], *, questions: bool = False) -> bytes:
    """Return the content of a kinds file, with a byte-order mark for spreadsheets.

    questions: add a column that says why each image is asked about
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*COLUMNS, "question"] if questions else COLUMNS)
    for row in rows:
        confidence = "" if row.confidence is None else f"{row.confidence:.3f}"
        cells = [_escaped(row.path), _escaped(row.coarse), _escaped(row.kind), confidence, row.role]
        writer.writerow([*cells, _escaped(row.question)] if questions else cells)
    return text.getvalue().encode("utf-8-sig")


def _check_header(path: Path, header: Sequence[str]) -> None:
    missing = [name for name in REQUIRED if name not in header]
    if missing:
        found = ", ".join(header) or "nothing"
        raise _wrong(path, 1, f"the column {missing[0]!r} is missing; the header is: {found}")
    twice = [name for name in COLUMNS if header.count(name) > 1]
    if twice:
        raise _wrong(path, 1, f"the column {twice[0]!r} is there twice; remove one")


def _row(path: Path, line: int, header: Sequence[str], cells: Sequence[str]) -> KindRow:
    if len(cells) < len(header):
        cells = [*cells, *[""] * (len(header) - len(cells))]  # spreadsheets drop empty cells at the end
    cell = dict(zip(header, cells, strict=False))
    name = _plain(cell["path"])
    if not name:
        raise _wrong(path, line, "the path is empty")
    try:
        kind = kind_name(_plain(cell["kind"]))
    except UsageError as error:
        raise _wrong(path, line, str(error)) from None
    role = cell.get("role", "").strip().lower()
    if role not in get_args(Role):
        raise _wrong(path, line, f"the role {role!r} is unknown; use typical, borderline, outlier or junk")
    coarse = _plain(cell["coarse"])
    number = _number(path, line, cell.get("confidence", ""))
    return KindRow(name, coarse, kind, number, cast(Role, role), line, cell.get("question", ""))


def kind_name(text: str) -> str:
    """Return the name of a kind without surrounding white space.

    Raises:
        UsageError: it does not fit one cell of a table.
    """
    kind = text.strip()
    if re.search(r"[\x00-\x1f\x7f\u2028\u2029\ud800-\udfff]", kind):
        raise UsageError(f"the kind {kind!r} has a line break or control character; remove it")
    if len(kind) > LONGEST_NAME:
        raise UsageError(f"the kind has {len(kind)} characters; at most {LONGEST_NAME} are allowed")
    return kind


def _number(path: Path, line: int, text: str) -> float | None:
    if not text.strip():
        return None
    try:
        value = float(text.strip().replace(",", "."))  # a decimal comma, as some spreadsheets write it
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise _wrong(
            path, line, f"the confidence {text.strip()!r} is not a number from 0 to 1; leave it empty"
        )
    return value


def _escaped(text: str) -> str:
    return f"'{text}" if text.startswith((*FORMULA_STARTS, "'")) else text


def _plain(text: str) -> str:
    return text[1:] if text.startswith("'") and text[1:].startswith((*FORMULA_STARTS, "'")) else text


def _wrong(path: Path, line: int, what: str) -> DataError:
    return DataError(f"{path}, line {line}: {printable(what)}")

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskcon._utils.errors import DataError
from maskcon.data.kinds_file import KindRow, read_kinds, write_kinds

HEADER = "path,coarse,kind,confidence,role\n"


def written(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "kinds.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


printable = st.text(
    st.characters(blacklist_categories=["Cc", "Cs", "Zl", "Zp", "Zs"]), min_size=1, max_size=20
)


@settings(deadline=None)
@given(
    st.lists(st.tuples(printable, printable, printable), min_size=1, max_size=8, unique_by=lambda row: row[0])
)
def test_what_is_written_is_read_again(tmp_path_factory, cells) -> None:
    path = tmp_path_factory.mktemp("kinds") / "kinds.csv"
    rows = [KindRow(*row, confidence=0.25, role="typical") for row in cells]
    write_kinds(path, rows)
    found = read_kinds(path)
    assert [(r.path, r.coarse, r.kind, r.confidence, r.role) for r in found] == [
        (r.path, r.coarse, r.kind, 0.25, "typical") for r in rows
    ]


def test_no_cell_begins_as_a_formula(tmp_path: Path) -> None:
    path = tmp_path / "kinds.csv"
    names = ["=1+1", "+A1", "-2", "@SUM(A1)", "\tx", "'=1", "plain"]
    write_kinds(path, [KindRow(f"{n}.jpg", "a", name) for n, name in enumerate(names) if name != "\tx"])
    with path.open(encoding="utf-8-sig", newline="") as file:
        assert not any(cell.startswith(("=", "+", "-", "@")) for row in csv.reader(file) for cell in row)
    assert [row.kind for row in read_kinds(path)] == [name for name in names if name != "\tx"]


def test_windows_line_ends_marks_and_notes_are_read(tmp_path: Path) -> None:
    text = (
        '\ufeffPath,coarse,kind,notes\r\na.jpg,cat,"Siam, blau",hm\r\nb.jpg,cat,\u732b\r\n\r\nc.jpg,cat\r\n'
    )
    rows = read_kinds(written(tmp_path, text))
    assert [(row.path, row.kind, row.name, row.line) for row in rows] == [
        ("a.jpg", "Siam, blau", "Siam, blau", 2),
        ("b.jpg", "\u732b", "\u732b", 3),
        ("c.jpg", "", None, 5),
    ]


@pytest.mark.parametrize("separator", [";", "\t"])
def test_semicolons_and_tabs_of_spreadsheets_are_read(tmp_path: Path, separator: str) -> None:
    lines = [
        "path,coarse,kind,confidence,role",
        '"a;b\t.jpg","cat, big",Siam,"0,5",typical',
        "b.jpg,cat,,,junk",
    ]
    cells = [next(csv.reader([line])) for line in lines]
    path = tmp_path / "kinds.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=separator).writerows(cells)
    first, second = read_kinds(path)
    assert (first.path, first.coarse, first.kind) == ("a;b\t.jpg", "cat, big", "Siam")
    assert (first.confidence, first.role, second.role, second.line) == (0.5, "typical", "junk", 3)


@pytest.mark.parametrize(
    ("kind", "role", "name"),
    [("kind 3", "", None), ("kind 03", "", "kind 03"), ("Gala", "junk", None), ("Gala", "outlier", "Gala")],
)
def test_numbers_and_junk_are_no_names(kind: str, role: str, name: str | None) -> None:
    assert KindRow("a", "apple", kind, role=role).name == name  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "line 1: the column 'path' is missing"),
        ("path,kind\n", "line 1: the column 'coarse' is missing; the header is: path, kind"),
        ("path,coarse,kind,kind\n", "line 1: the column 'kind' is there twice"),
        (HEADER, "no rows"),
        (HEADER + "a,x,k,,\na,x,k,,\n", "line 3: a is in line 2 already"),
        (HEADER + ",x,k,,\n", "line 2: the path is empty"),
        (HEADER + "a,x,k,2,\n", "line 2: the confidence '2'"),
        (HEADER + "a,x,k,nan,\n", "line 2: the confidence 'nan'"),
        (HEADER + "a,x,k,,great\n", "line 2: the role 'great' is unknown"),
        (HEADER + 'a,x,"two\nlines",,\n', "line 3: the kind 'two\\nlines' has a line break"),
        (HEADER + 'a,x,"open,,\n', "is a quote missing"),
        (HEADER + f"a,x,{'k' * 201},,\n", "line 2: the kind has 201 characters"),
        (b"path,coarse,kind\na,x,\xff\n", "line 2: not UTF-8"),
    ],
)
def test_errors_name_the_line_and_the_way_out(tmp_path: Path, text: str | bytes, told: str) -> None:
    with pytest.raises(DataError) as error:
        read_kinds(written(tmp_path, text))
    assert told in str(error.value)


def test_a_missing_file_is_reported_as_missing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_kinds(tmp_path / "kinds.csv")

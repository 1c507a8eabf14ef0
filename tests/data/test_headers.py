from __future__ import annotations

from pathlib import Path

import pytest

from maskcon.data import headers
from maskcon.data.decoding import Shape
from maskcon.data.headers import read_headers
from tests.data.miniatures import write_picture

PATHS = ["a.png", "grey.png", "bad.png", "absent.png"]
FOUND = [
    Shape(20, 10, "RGB", "PNG"),
    Shape(10, 30, "L", "PNG", is_grey=True),
    "not an image of a known format",
    "No such file or directory",
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_picture(tmp_path / "set" / "a.png", (20, 10))
    write_picture(tmp_path / "set" / "grey.png", (10, 30), 7, "L")
    (tmp_path / "set" / "bad.png").write_text("no image")
    return tmp_path / "set"


def test_headers_are_read_or_the_reason_is_given(root: Path) -> None:
    assert read_headers(root, PATHS) == FOUND


def test_progress_is_told_where_there_are_many_to_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []

    def note(done: int, total: int) -> None:
        told.append((done, total))

    read_headers(root, PATHS, progress=note)
    assert told == []
    monkeypatch.setattr(headers, "MANY", 3)
    read_headers(root, PATHS, progress=note)
    assert told == [(4, 4)]

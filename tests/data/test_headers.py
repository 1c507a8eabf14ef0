from __future__ import annotations

from pathlib import Path

import pytest

from maskcon.data import photos
from maskcon.data.decoding import Shape
from maskcon.data.folder_layout import Found, Layout
from maskcon.data.photos import read_headers
from tests.data.miniatures import write_picture

PATHS = ["a.png", "grey.png", "bad.png", "absent.png"]
FOUND = [
    Shape(20, 10, "RGB", "PNG"),
    Shape(10, 30, "L", "PNG", is_grey=True),
    "not an image of a known format",
    "No such file or directory",
]


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    write_picture(tmp_path / "set" / "a.png", (20, 10))
    write_picture(tmp_path / "set" / "grey.png", (10, 30), 7, "L")
    (tmp_path / "set" / "bad.png").write_text("no image")
    files = [Found(path, False, "a", None) for path in PATHS]
    return Layout("set", tmp_path / "set", "", "", files=files)


def test_headers_are_read_or_the_reason_is_given(layout: Layout) -> None:
    assert read_headers(layout) == FOUND


def test_progress_is_reported_where_there_are_many_to_read(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, int]] = []

    def note(done: int, total: int) -> None:
        told.append((done, total))

    read_headers(layout, progress=note)
    assert told == []
    monkeypatch.setattr(photos, "MANY", 3)
    read_headers(layout, progress=note)
    assert told == [(4, 4)]

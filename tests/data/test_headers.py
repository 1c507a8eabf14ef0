from __future__ import annotations

from pathlib import Path

import pytest

from maskcon.data import headers, load_photos
from maskcon.data.decoding import Header
from maskcon.data.headers import read_headers
from tests.data.class_folders import write_classes
from tests.data.miniatures import write_picture

PATHS = ["a.png", "grey.png", "bad.png", "absent.png"]
FOUND = [Header(20, False), Header(30, True), "not an image of a known format", "No such file or directory"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_picture(tmp_path / "set" / "a.png", (20, 10))
    write_picture(tmp_path / "set" / "grey.png", (10, 30), 7, "L")
    (tmp_path / "set" / "bad.png").write_text("no image")
    return tmp_path / "set"


def refuse_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> Header:
        raise AssertionError("read again")

    monkeypatch.setattr(headers, "read_header", refuse)


def test_few_headers_are_read_and_nothing_is_kept(root: Path, tmp_path: Path) -> None:
    assert read_headers(root, PATHS, tmp_path / "cache") == FOUND
    assert not (tmp_path / "cache").exists()


def test_many_headers_are_read_once(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headers, "REMEMBER_FROM", 3)
    assert read_headers(root, PATHS, tmp_path / "cache") == FOUND
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".json"]
    refuse_reading(monkeypatch)
    assert read_headers(root, PATHS, tmp_path / "cache") == FOUND
    with pytest.raises(AssertionError, match="read again"):
        read_headers(root, PATHS[:3], tmp_path / "cache")


def test_a_changed_file_is_read_anew(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headers, "REMEMBER_FROM", 3)
    read_headers(root, PATHS, tmp_path / "cache")
    write_picture(root / "absent.png", (5, 6))
    assert read_headers(root, PATHS, tmp_path / "cache") == [*FOUND[:3], Header(6, False)]
    assert len(list((tmp_path / "cache").iterdir())) == 1


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"key": 1}', b"\xff\xfe"])
def test_a_damaged_memory_is_read_anew(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.setattr(headers, "REMEMBER_FROM", 3)
    read_headers(root, PATHS, tmp_path / "cache")
    next((tmp_path / "cache").iterdir()).write_bytes(content)
    assert read_headers(root, PATHS, tmp_path / "cache") == FOUND


def test_a_cache_that_cannot_be_written_to_is_no_error(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(headers, "REMEMBER_FROM", 3)
    (tmp_path / "cache").write_text("a file in the way")
    assert read_headers(root, PATHS, tmp_path / "cache") == FOUND


def test_a_folder_loads_the_same_from_remembered_headers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_classes(tmp_path / "set", "a", "b")
    (root / "a" / "text.jpg").write_text("not an image")
    first = load_photos(root, cache=tmp_path / "cache")
    monkeypatch.setattr(headers, "REMEMBER_FROM", 3)
    load_photos(root, cache=tmp_path / "cache")
    refuse_reading(monkeypatch)
    again = load_photos(root, cache=tmp_path / "cache")
    assert again.fingerprint() == first.fingerprint()
    assert again.notes == first.notes


def test_progress_is_told_where_there_are_many_to_read(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, int]] = []

    def note(done: int, total: int) -> None:
        told.append((done, total))

    read_headers(root, PATHS, tmp_path / "cache", progress=note)
    assert told == []
    monkeypatch.setattr(headers, "REMEMBER_FROM", 3)
    for cache in (None, tmp_path / "cache", tmp_path / "cache"):  # the last time they are remembered
        read_headers(root, PATHS, cache, progress=note)
    assert told == [(4, 4), (4, 4)]

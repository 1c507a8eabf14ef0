"""Manifests: what they list, in every spelling and from every place, is read as a folder is."""

from __future__ import annotations

import codecs
import os
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maskcon._utils.errors import DataError
from maskcon.data import Dataset, absolute, load
from maskcon.data.manifest import listed_images, read_rows
from tests.data.class_folders import load_photos
from tests.data.manifests import Rows, pictures, usual_rows, write_csv, write_parquet


def all_paths(data: Dataset) -> list[str]:
    return sorted([*(data.train.paths or ()), *(data.test.paths or ())])


@pytest.mark.parametrize("name", ["photos.csv", "photos.parquet"])
def test_manifest_gives_what_the_folder_gives(tmp_path: Path, name: str) -> None:
    rows = usual_rows()
    pictures(tmp_path / "p", *(row[0] for row in rows))
    write = write_csv if name.endswith("csv") else write_parquet
    data = load(str(write(tmp_path / "p" / name, rows)))
    folder = load_photos(tmp_path / "p")
    assert data.fingerprint() == folder.fingerprint()
    assert (data.name, data.coarse_names) == ("photos", folder.coarse_names)
    assert data.train.paths == folder.train.paths


def test_order_of_rows_and_other_columns_change_nothing(tmp_path: Path) -> None:
    rows = usual_rows()
    pictures(tmp_path, *(row[0] for row in rows))
    first = load_photos(write_csv(tmp_path / "a.csv", rows))
    other = [("x", label, path, "") for path, label in rows[::-1]]
    second = load_photos(write_csv(tmp_path / "b.csv", other, "Note, Coarse,PATH,split"))
    assert first.fingerprint() == second.fingerprint()


def test_paths_start_from_the_manifest_whatever_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = usual_rows()
    pictures(tmp_path / "deep" / "er", *(row[0] for row in rows))
    write_csv(tmp_path / "deep" / "er" / "list.csv", rows)
    monkeypatch.chdir(tmp_path / "deep")
    one = load("er/list.csv")
    monkeypatch.chdir(tmp_path / "deep" / "er")
    assert load("list.csv").fingerprint() == one.fingerprint()


def test_fine_labels_and_splits_are_taken(tmp_path: Path) -> None:
    header = "path,coarse,fine,split"
    rows: Rows = [
        (f"{fine}{number}.png", fine[0], fine, split)
        for fine in ("ax", "ay", "bz")
        for number, split in enumerate(("train", "Training", " TEST ", "val"))
    ]
    pictures(tmp_path, *(row[0] for row in rows))
    data = load_photos(write_csv(tmp_path / "m.csv", rows, header))
    assert (data.coarse_names, data.fine_names, data.coarse_of_fine) == (
        ("a", "b"),
        ("ax", "ay", "bz"),
        (0, 0, 1),
    )
    assert (len(data.train), len(data.test)) == (6, 3)
    assert data.test.paths == ("ax2.png", "ay2.png", "bz2.png")
    assert any("not used beside 'test': 3 rows of the split 'val'" in note for note in data.notes)


def test_fine_labels_may_exist_for_testing_alone(tmp_path: Path) -> None:
    rows: Rows = [
        ("a1.png", "a", "", "train"),
        ("b1.png", "b", "", "train"),
        ("a2.png", "a", "x", "test"),
        ("b2.png", "b", "y", "test"),
    ]
    pictures(tmp_path, *(row[0] for row in rows))
    data = load_photos(write_csv(tmp_path / "m.csv", rows, "path,coarse,fine,split"))
    assert data.train.fine is None
    assert data.test.fine is not None
    assert data.fine_names == ("x", "y")


ODD = [
    "with, comma.png",
    'a "quote".png',
    "\U0001f436 \u732b.png",
    "line\nbreak.png",
    " blank.png",
    "caf\u00e9;x.png",
]


@pytest.mark.skipif(os.name != "posix", reason="such names are for POSIX")
@pytest.mark.parametrize("name", ["photos.csv", "photos.parquet"])
def test_odd_names_work_in_paths_and_labels(tmp_path: Path, name: str) -> None:
    rows: Rows = [
        (f"{label}{odd}", label)
        for label in ("\U0001f436, old", 'it\'s "it"', "zwei\nZeilen")
        for odd in ODD
        if "/" not in odd
    ]
    pictures(tmp_path, *(row[0] for row in rows))
    write = write_csv if name.endswith("csv") else write_parquet
    data = load_photos(write(tmp_path / name, rows))
    assert all_paths(data) == sorted(path for path, _ in rows)
    assert data.coarse_names == ('it\'s "it"', "zwei\\nZeilen", "\U0001f436, old")


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
def test_separators_line_ends_and_byte_order_marks(
    tmp_path: Path, separator: str, end: str, mark: bytes
) -> None:
    rows = usual_rows(3)
    pictures(tmp_path, *(row[0] for row in rows))
    lines = [separator.join(row) for row in [("path", "coarse"), *rows]]
    (tmp_path / "m.csv").write_bytes(mark + (end.join(lines) + end + end).encode())
    assert len(all_paths(load_photos(tmp_path / "m.csv"))) == 6


def test_whole_numbers_and_dictionaries_are_labels_in_parquet(tmp_path: Path) -> None:
    pictures(tmp_path, *(f"{number}.png" for number in range(6)))
    table = pa.table(
        {
            "path": [f"{number}.png" for number in range(6)],
            "coarse": [10, 10, 10, 2, 2, 2],
            "fine": pa.array(["x", "x", "y", "z", "z", "z"]).dictionary_encode(),
        }
    )
    pq.write_table(table, tmp_path / "m.parquet")
    data = load_photos(tmp_path / "m.parquet")
    assert (data.coarse_names, data.fine_names) == (("10", "2"), ("x", "y", "z"))


def test_full_paths_work_and_below_the_manifest_equal_relative_ones(tmp_path: Path) -> None:
    rows = usual_rows(3)
    pictures(tmp_path / "in", *(row[0] for row in rows))
    relative = load_photos(write_csv(tmp_path / "in" / "a.csv", rows))
    full = [(str(tmp_path / "in" / path), label) for path, label in rows]
    assert load_photos(write_csv(tmp_path / "in" / "b.csv", full)).fingerprint() == relative.fingerprint()
    (tmp_path / "elsewhere").mkdir()
    away = load_photos(write_csv(tmp_path / "elsewhere" / "c.csv", full))
    assert len(all_paths(away)) == 6
    sums = [
        sorted(int(image.sum()) for part in (d.train, d.test) for image in part.images)
        for d in (away, relative)
    ]
    assert sums[0] == sums[1]


def test_unreadable_images_are_left_out_or_stop_a_strict_run(tmp_path: Path) -> None:
    rows = [*usual_rows(4), ("cat/text.png", "cat")]
    pictures(tmp_path, *(row[0] for row in rows[:-1]))
    (tmp_path / "cat" / "text.png").write_text("no image")
    path = write_csv(tmp_path / "m.csv", rows)
    data = load_photos(path)
    assert len(all_paths(data)) == 8
    assert any(
        note.startswith("1 image could not be read and was left out: cat/text.png") for note in data.notes
    )
    with pytest.raises(DataError, match=r"cat/text\.png cannot be read"):
        load_photos(path, strict=True)


def test_held_out_rows_stay_when_rows_are_added(tmp_path: Path) -> None:
    rows = usual_rows(40)
    pictures(tmp_path, *(row[0] for row in rows))
    before = load_photos(write_csv(tmp_path / "m.csv", rows))
    more = [(f"new{number}.png", "cat") for number in range(30)]
    pictures(tmp_path, *(row[0] for row in more))
    after = load_photos(write_csv(tmp_path / "m.csv", more + rows))
    assert set(before.test.paths or ()) == {p for p in after.test.paths or () if not p.startswith("new")}


def test_embedding_needs_no_labels(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "m.csv", [("a.png",), ("b.png",)], "path")
    assert list(listed_images(path)) == [("a.png", ""), ("b.png", "")]


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_rows_are_streamed(tmp_path: Path, name: str) -> None:
    """A fault in an early row is found at once, and reading holds a block of the file at most."""
    count = 100_000
    path = tmp_path / name
    if name.endswith("csv"):
        with path.open("w", encoding="utf-8") as file:
            file.write("path,coarse\n")
            file.writelines(f"folder/{number:09d}.jpg,cat\n" for number in range(count))
    else:
        write_parquet(path, [(f"folder/{number:09d}.jpg", "cat") for number in range(count)])
        next(read_rows(path, ("path",)))  # pyarrow's own first import is not counted
    tracemalloc.start()
    seen = sum(1 for _ in read_rows(path, ("path", "coarse")))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seen == count
    assert peak < 32e6


def test_manifest_reached_by_a_link_lists_what_lies_beside_the_file_itself(tmp_path: Path) -> None:
    """As in `embed` and `index`, and as a run finds it again by its full path."""
    rows = usual_rows(3)
    pictures(tmp_path / "in", *(row[0] for row in rows))
    write_csv(tmp_path / "in" / "list.csv", rows)
    (tmp_path / "link.csv").symlink_to(tmp_path / "in" / "list.csv")
    linked = load(str(tmp_path / "link.csv"))
    assert linked.fingerprint() == load(absolute(str(tmp_path / "link.csv"))).fingerprint()

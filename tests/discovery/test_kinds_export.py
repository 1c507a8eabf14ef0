"""Kinds exported as a folder tree that other programs read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from maskcon._utils import files
from maskcon._utils.errors import UsageError
from maskcon.data.collection import gather
from maskcon.data.image_readers import ImageArrays
from maskcon.data.kinds_file import KindRow
from maskcon.discovery.kinds_export import METADATA, export_kinds, plan_places, safe_name
from tests.finished_run import write_photo
from tests.miniature import miniature

HOSTILE = (
    "..",
    "/etc/passwd",
    "a/../../b",
    "CON",
    "nul.jpg",
    "",
    " . ",
    "=1+1",
    "x\x00y",
    "\u202egpj.exe",
    "ä" * 300,
)


def rows_of(*kinds: tuple[str, str], coarse: str = "cat") -> list[KindRow]:
    return [KindRow(path, coarse, kind, 0.5, "typical") for path, kind in kinds]


@pytest.fixture
def photos(tmp_path):
    for number in range(4):
        write_photo(tmp_path / "photos" / ("a" if number < 2 else "b") / f"{number % 2}.png", number)
    return gather(str(tmp_path / "photos"), canvas=16, channels=3)


def tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*.png")}


@pytest.mark.parametrize("text", HOSTILE)
def test_any_text_becomes_one_safe_name(text):
    name = safe_name(text)
    assert name == safe_name(name)
    assert name not in ("", ".", "..")
    assert not set(name) & set('<>:"/\\|?*\x00')
    assert name.isprintable()
    assert len(name.encode()) <= 220
    assert name[0] not in ".=+-@"


def test_places_stay_inside_and_never_collide():
    rows = [
        KindRow(f"{number}/x.JPG", coarse, kind)
        for number, (coarse, kind) in enumerate((a, b) for a in (*HOSTILE, "Cat", "cat") for b in HOSTILE)
    ]
    rows += rows_of(("p/1.jpg", "Gala"), ("q/1.JPG", "Gala"), ("r/1.jpg", "gala"))
    places = plan_places(rows)
    assert len({place.casefold() for place in places.values()}) == len(rows)
    assert all(len(place.split("/")) == 3 and ".." not in place.split("/") for place in places.values())
    folders = {}
    for row in rows:
        folders.setdefault((row.coarse, row.kind), set()).add(places[row.path].rpartition("/")[0].casefold())
    assert all(len(found) == 1 for found in folders.values())
    assert len({found.pop() for found in folders.values()}) == len(folders)


@pytest.mark.parametrize("links", [False, True])
def test_copies_and_links_lead_to_the_images_and_junk_is_left_out(photos, tmp_path, links):
    rows = rows_of(("a/0.png", "Gala"), ("a/1.png", ""), ("b/0.png", "Gala"))
    rows.append(KindRow("b/1.png", "cat", "Gala", None, "junk"))
    done = export_kinds(tmp_path / "out", rows, photos, links=links)
    assert (done.images, done.written, done.removed, done.left_out) == (3, 3, 0, {})
    assert tree(tmp_path / "out") == {"cat/Gala/0.png", "cat/Gala/0-2.png", "cat/no kind/1.png"}
    for place, path in (("Gala/0.png", "a/0.png"), ("Gala/0-2.png", "b/0.png")):
        target = tmp_path / "out" / "cat" / place
        assert target.is_symlink() == links
        assert target.read_bytes() == (tmp_path / "photos" / path).read_bytes()
    again = export_kinds(tmp_path / "out", rows, photos, links=links)
    assert (again.images, again.written, again.removed) == (3, 0, 0)


def test_datasets_library_reads_every_image_with_its_kind(photos, tmp_path):
    datasets = pytest.importorskip("datasets")
    # by their folders alone, classes of these names would become splits
    rows = [*rows_of(("a/0.png", "Gala"), ("a/1.png", "=Fuji, red"), coarse="test")]
    rows += rows_of(("b/0.png", 'say "x"'), ("b/1.png", "苹果"), coarse="validation")
    for links in (False, True):
        folder = tmp_path / f"out{links}"
        export_kinds(folder, rows, photos, links=links)
        found = datasets.load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))
        assert list(found) == ["train"]
        for row, example in zip(rows, found["train"], strict=True):
            assert (example["path"], example["coarse"], example["kind"]) == (row.path, row.coarse, row.kind)
            assert (example["confidence"], example["role"]) == (0.5, "typical")
            expected = np.asarray(Image.open(tmp_path / "photos" / row.path))
            assert np.array_equal(np.asarray(example["image"]), expected)


def test_image_folder_loader_reads_it_too(photos, tmp_path):
    datasets = pytest.importorskip("datasets")
    export_kinds(tmp_path / "out", rows_of(("a/0.png", "Gala"), ("b/1.png", "Fuji")), photos)
    found = datasets.load_dataset(
        "imagefolder", data_dir=str(tmp_path / "out"), split="train", cache_dir=str(tmp_path / "cache")
    )
    assert sorted(found["kind"]) == ["Fuji", "Gala"]


def test_second_export_moves_what_changed_and_leaves_the_files_of_others_alone(photos, tmp_path):
    out = tmp_path / "out"
    rows = rows_of(("a/0.png", "kind 1"), ("a/1.png", "kind 2"), ("b/0.png", "kind 2"))
    export_kinds(out, rows, photos)
    (out / "cat" / "kind 1" / "notes.txt").write_text("mine")
    moved = [replace(rows[0], kind="kind 2"), rows[1], replace(rows[2], role="junk")]
    done = export_kinds(out, moved, photos)
    assert tree(out) == {"cat/kind 2/0.png", "cat/kind 2/1.png"}
    assert (out / "cat" / "kind 2" / "0.png").read_bytes() == (tmp_path / "photos/a/0.png").read_bytes()
    assert (done.images, done.written, done.removed) == (2, 1, 1)
    assert (out / "cat" / "kind 1" / "notes.txt").is_file()


def test_export_that_was_broken_off_is_completed(photos, tmp_path, monkeypatch):
    out = tmp_path / "out"
    rows = rows_of(("a/0.png", "x"), ("a/1.png", "x"), ("b/0.png", "y"))
    calls = []

    def stop(name: str) -> None:
        calls.append(name)
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("maskcon.discovery.kinds_export.failpoint", stop)
    with pytest.raises(KeyboardInterrupt):
        export_kinds(out, rows, photos)
    assert not (out / METADATA).exists()
    monkeypatch.setattr("maskcon.discovery.kinds_export.failpoint", files.failpoint)
    done = export_kinds(out, [replace(row, kind="z") for row in rows], photos)
    assert tree(out) == {"cat/z/0.png", "cat/z/1.png", "cat/z/0-2.png"}
    assert (done.images, done.removed) == (3, 2)
    assert [json.loads(line)["file_name"] for line in (out / METADATA).read_text().splitlines()] == [
        "cat/z/0.png",
        "cat/z/1.png",
        "cat/z/0-2.png",
    ]


def test_folders_that_are_no_export_are_refused_and_stay_as_they_were(photos, tmp_path):
    rows = rows_of(("a/0.png", "x"))
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "letter.txt").write_text("mine")
    for folder, reason in (
        (tmp_path / "own", "not empty"),
        (tmp_path / "own" / "letter.txt", "is a file"),
        (tmp_path / "photos" / "sorted", "among the images"),
    ):
        with pytest.raises(UsageError, match=reason):
            export_kinds(folder, rows, photos)
    assert [path.name for path in (tmp_path / "own").iterdir()] == ["letter.txt"]


def test_edited_metadata_cannot_make_an_export_remove_files_elsewhere(photos, tmp_path):
    out, rows = tmp_path / "out", rows_of(("a/0.png", "x"))
    export_kinds(out, rows, photos)
    victim = tmp_path / "victim" / "k"
    victim.mkdir(parents=True)
    (victim / "f.png").write_text("mine")
    (out / "door").symlink_to(tmp_path / "victim")
    with (out / METADATA).open("a") as file:
        for name in ("../victim/k/f.png", str(victim / "f.png"), "door/k/f.png", "..\\victim\\f.png"):
            file.write(json.dumps({"file_name": name}) + "\n")
    export_kinds(out, rows, photos)
    assert (victim / "f.png").read_text() == "mine"
    (out / METADATA).write_text("{}\n")
    with pytest.raises(UsageError, match="damaged"):
        export_kinds(out, rows, photos)


def test_export_follows_no_link_out_of_its_folder(photos, tmp_path):
    out = tmp_path / "out"
    export_kinds(out, rows_of(("a/0.png", "x")), photos)
    (tmp_path / "victim").mkdir()
    (out / "dog").symlink_to(tmp_path / "victim")
    with pytest.raises(UsageError, match="in the way"):
        export_kinds(out, rows_of(("a/0.png", "x"), coarse="dog"), photos)
    assert not list((tmp_path / "victim").iterdir())


def test_images_in_memory_are_written_as_png_and_cannot_be_linked(tmp_path):
    images = ImageArrays("miniature", miniature(), channels=3)
    rows = rows_of((images.paths[0], "x"), (images.paths[1], "x"), ("train/99999", "x"))
    done = export_kinds(tmp_path / "out", rows, images)
    assert done.images == 2
    assert done.left_out == {"train/99999": "not in its source any more"}
    found = sorted((tmp_path / "out").rglob("*.png"))
    assert np.array_equal(np.asarray(Image.open(found[0])), images.image(0).transpose(1, 2, 0).squeeze())
    assert export_kinds(tmp_path / "out", rows, images).written == 0
    with pytest.raises(UsageError, match="without --links"):
        export_kinds(tmp_path / "out", rows, images, links=True)

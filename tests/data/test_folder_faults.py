"""Folders of images with something wrong: what is left out and noted, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from maskcon._utils.errors import DataError, UsageError
from maskcon.data import absolute, load
from tests.data.class_folders import all_paths, load_photos, write_classes
from tests.data.miniatures import write_picture
from tests.data.test_decode import png_claiming
from tests.faults.disk import Disk, Fault


def test_images_of_a_kind_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    write_classes(tmp_path, "a", "b", count=3)
    (tmp_path / "a" / "phone.HEIC").write_bytes(b"no matter what")
    note = next(note for note in load_photos(tmp_path).notes if "left out" in note)
    assert note.endswith("a/phone.HEIC (.heic cannot be read; convert it to JPEG)")
    with pytest.raises(DataError, match=r"a/phone\.HEIC cannot be read"):
        load_photos(tmp_path, strict=True)


def test_folder_of_such_images_alone_says_what_to_do(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "phone.heic").write_bytes(b"no matter what")
    with pytest.raises(DataError, match=r"none of the 2 images.*convert it to JPEG"):
        load_photos(tmp_path)


def test_unusable_images_are_left_out_with_a_note(tmp_path: Path) -> None:
    write_classes(tmp_path, "a", "b", count=8)
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "a" / "cut.png")
    (tmp_path / "a" / "cut.png").write_bytes((tmp_path / "a" / "cut.png").read_bytes()[:5000])
    (tmp_path / "a" / "text.jpg").write_text("not an image")
    (tmp_path / "b" / "empty.png").touch()
    (tmp_path / "b" / "bomb.png").write_bytes(png_claiming(15_000, 15_000))
    (tmp_path / "b" / "dangling.png").symlink_to(tmp_path / "nowhere.png")
    os.mkfifo(tmp_path / "b" / "pipe.png")
    data = load_photos(tmp_path)
    assert all_paths(data) == {f"{name}/{number}.png" for name in "ab" for number in range(8)}
    note = next(note for note in data.notes if "could not be read" in note)
    assert note.startswith("6 images")
    for part in (data.train, data.test):  # rows did not shift when others were left out
        for row, path in enumerate(part.paths or ()):
            assert part.images[row, 1, 0, 0] == int(Path(path).stem) * 10


@pytest.mark.parametrize("kind", ["open", "read", "list"])
def test_a_disk_that_fails_stops_training_and_a_file_that_may_not_be_read_is_left_out(tmp_path, kind):
    """A run without an image that is there again later would be one on other data."""
    write_classes(tmp_path, "a", "b", count=4)
    with Disk(tmp_path) as disk:
        load_photos(tmp_path)
    places = [number for number, found in enumerate(disk.operations, start=1) if found.kind == kind]
    for place in (places[1], places[-1]):
        with (
            Disk(tmp_path, Fault(place, "EIO")),
            pytest.raises(DataError, match=r"cannot read .*Input/output"),
        ):
            load_photos(tmp_path)
    if kind == "open":
        with Disk(tmp_path, Fault(places[-1], "EACCES")):
            assert any("Permission denied" in note for note in load_photos(tmp_path).notes)


def test_strict_stops_at_an_unusable_image(tmp_path: Path) -> None:
    write_classes(tmp_path, "a", "b")
    (tmp_path / "a" / "text.jpg").write_text("not an image")
    with pytest.raises(DataError, match=r"a/text\.jpg.*not an image"):
        load_photos(tmp_path, strict=True)


def test_strict_stops_at_an_image_that_fails_while_decoding(tmp_path: Path) -> None:
    write_classes(tmp_path, "a", "b")
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "a" / "cut.png")
    (tmp_path / "a" / "cut.png").write_bytes((tmp_path / "a" / "cut.png").read_bytes()[:5000])
    with pytest.raises(DataError, match=r"a/cut\.png"):
        load(str(tmp_path), strict=True)


def test_other_files_and_empty_classes_are_noted(tmp_path: Path) -> None:
    write_classes(tmp_path, "a", "b")
    (tmp_path / "a" / "notes.txt").touch()
    (tmp_path / "a" / ".hidden.png").touch()
    (tmp_path / "readme.md").touch()
    (tmp_path / ".git").mkdir()
    (tmp_path / "c").mkdir()
    data = load_photos(tmp_path)
    assert data.coarse_names == ("a", "b")
    assert any(note.startswith("3 other files") for note in data.notes)
    assert any("without an image" in note and note.endswith(": c") for note in data.notes)


def test_class_only_in_test_is_noted(tmp_path: Path) -> None:
    write_classes(tmp_path / "train", "a", "b", count=2)
    write_classes(tmp_path / "test", "a", "z", count=2)
    data = load_photos(tmp_path)
    assert any("without an image to train on: z" in note for note in data.notes)


def test_missing_folder_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist; give a folder"):
        load_photos(tmp_path / "absent")


def test_file_instead_of_a_folder_is_a_clear_error(tmp_path: Path) -> None:
    path = write_picture(tmp_path / "a.png")
    with pytest.raises(DataError, match="is not a folder"):
        load_photos(path)


def test_folder_without_images_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(DataError, match=r"no image found.*\(1 other file\).*CLASS/image\.jpg"):
        load_photos(tmp_path)
    write_picture(tmp_path / "loose.png")
    with pytest.raises(DataError, match=r"\(1 image in no sub-folder, 1 other file\).*CLASS/image\.jpg"):
        load_photos(tmp_path)


def test_folder_with_one_class_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"only one class.*\(a\)"):
        load_photos(write_classes(tmp_path, "a"))


def test_folder_with_one_image_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="single image"):
        load_photos(write_classes(tmp_path, "a", count=1))


def test_folder_of_unreadable_images_is_a_clear_error(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.jpg").write_text("no")
    with pytest.raises(DataError, match=r"none of the 2 images.*a/x\.jpg"):
        load_photos(tmp_path)


def test_mixed_depths_are_a_clear_error(tmp_path: Path) -> None:
    write_classes(tmp_path, "a", "b/x")
    with pytest.raises(DataError, match="use one depth"):
        load_photos(tmp_path)


def test_loop_of_links_adds_no_image_twice(tmp_path: Path) -> None:
    write_classes(tmp_path, "a/x", "b/y", count=3)
    (tmp_path / "a" / "x" / "loop").symlink_to(tmp_path / "a", target_is_directory=True)
    assert len(all_paths(load_photos(tmp_path))) == 6


@pytest.mark.parametrize("size", [0, 7, 5000, -1])
def test_image_size_out_of_range_is_refused(tmp_path: Path, size: int) -> None:
    with pytest.raises(UsageError, match=r"8\.\.4096"):
        load_photos(tmp_path, image_size=size)


def test_link_to_the_whole_folder_brings_no_class_into_another(tmp_path: Path) -> None:
    write_classes(tmp_path, "a/x", "b/y", count=3)
    (tmp_path / "a" / "x" / "up").symlink_to(tmp_path, target_is_directory=True)
    assert all_paths(load_photos(tmp_path)) == {
        f"{name}/{number}.png" for name in ("a/x", "b/y") for number in range(3)
    }


@pytest.mark.parametrize("place", ["itself", "a/itself.png", ".itself"])
def test_link_to_itself_is_left_out_with_a_note(tmp_path: Path, place: str) -> None:
    write_classes(tmp_path, "a", "b", count=3)
    (tmp_path / place).symlink_to(tmp_path / place)
    data = load_photos(tmp_path)
    assert len(all_paths(data)) == 6
    assert any(place in note and "Too many levels" in note for note in data.notes)


def test_images_in_too_many_folders_are_left_out_with_a_note(tmp_path: Path) -> None:
    write_classes(tmp_path, "a/x", "b/y" + "/d" * 20, count=3)
    write_classes(tmp_path, "b/z", count=3)
    assert any("16 folders deep" in note for note in load_photos(tmp_path).notes)


def test_folder_whose_name_cannot_be_looked_up_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot read .*too long"):
        load_photos(tmp_path / ("x" * 300))


def test_link_to_the_whole_folder_is_no_class_of_it(tmp_path: Path) -> None:
    write_classes(tmp_path, "a/x", "b/y", count=3)
    (tmp_path / "everything").symlink_to(tmp_path, target_is_directory=True)
    data = load_photos(tmp_path)
    assert data.coarse_names == ("a", "b")
    assert len(all_paths(data)) == 6


def test_folder_that_is_a_link_to_itself_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    assert absolute(str(tmp_path / "circle")) == str(tmp_path / "circle")
    with pytest.raises(DataError, match="circle does not exist"):
        load(str(tmp_path / "circle"))

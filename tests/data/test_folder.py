"""Folders of images: their classes, parts, names, sizes and ids."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from maskcon.data import load
from maskcon.data.folder_layout import path_hash, read_any_depth
from tests.data.class_folders import all_paths, load_photos, write_classes
from tests.data.miniatures import write_picture


def test_sub_folders_are_coarse_classes(tmp_path: Path) -> None:
    data = load(str(write_classes(tmp_path / "pets", "dog", "cat")))
    assert data.name == "pets"
    assert data.coarse_names == ("cat", "dog")
    assert data.fine_names is None
    assert data.train.fine is None
    assert len(data.train) + len(data.test) == 20
    for part in (data.train, data.test):
        for row, path in enumerate(part.paths or ()):
            assert path.startswith(data.coarse_names[part.coarse[row]])
            expected = np.asarray(Image.open(tmp_path / "pets" / path)).transpose(2, 0, 1)
            assert np.array_equal(part.images[row], expected)


def test_two_levels_are_coarse_and_fine(tmp_path: Path) -> None:
    data = load_photos(write_classes(tmp_path, "a/x", "a/y", "b/x"))
    assert data.coarse_names == ("a", "b")
    assert data.fine_names == ("a/x", "a/y", "b/x")
    assert data.coarse_of_fine == (0, 0, 1)
    assert data.train.fine is not None
    assert set(data.train.fine.tolist()) == {0, 1, 2}


@pytest.mark.parametrize(
    ("train_name", "test_name"),
    [
        ("train", "test"),
        ("train", "val"),
        ("train", "valid"),
        ("train", "validation"),
        ("Train", "Test"),
        ("training", "testing"),
    ],
)
def test_own_parts_are_kept(tmp_path: Path, train_name: str, test_name: str) -> None:
    write_classes(tmp_path / train_name, "a", "b", count=4)
    write_classes(tmp_path / test_name, "a", "b", count=2)
    data = load_photos(tmp_path)
    assert (len(data.train), len(data.test)) == (8, 4)
    assert all(path.startswith(f"{train_name}/") for path in data.train.paths or ())
    assert not any("held out" in note for note in data.notes)


def test_a_folder_called_train_beside_others_is_a_class(tmp_path: Path) -> None:
    """Railway images: for training and for embedding alike."""
    data = load_photos(write_classes(tmp_path, "train", "bus"))
    assert data.coarse_names == ("bus", "train")
    assert {found.coarse for found in read_any_depth(tmp_path).files} == {"bus", "train"}


@pytest.mark.parametrize("parts", [("train",), ("train", "test"), ("training", "testing", "valid")])
def test_labels_for_embedding_lie_below_the_parts(tmp_path: Path, parts: tuple[str, ...]) -> None:
    for part in parts:
        write_classes(tmp_path / part, "cat", "dog/old", count=2)
    assert {found.coarse for found in read_any_depth(tmp_path).files} == {"cat", "dog"}


def test_fine_labels_may_exist_only_for_testing(tmp_path: Path) -> None:
    write_classes(tmp_path / "train", "a", "b", count=4)
    write_classes(tmp_path / "test", "a/x", "a/y", "b/z", count=2)
    data = load_photos(tmp_path)
    assert data.train.fine is None
    assert data.test.fine is not None
    assert data.test.fine.tolist() == [0, 0, 1, 1, 2, 2]


def test_held_out_part_is_stable_under_added_files(tmp_path: Path) -> None:
    before = load_photos(write_classes(tmp_path, "a", "b", count=40))
    held = set(before.test.paths or ())
    assert 4 <= len(held) <= 30
    for number in range(30):
        write_picture(tmp_path / "a" / f"new{number}.png")
    after = load_photos(tmp_path)
    assert held == {path for path in after.test.paths or () if "new" not in path}


def test_ids_depend_on_the_relative_path_alone(tmp_path: Path) -> None:
    data = load_photos(write_classes(tmp_path / "one", "a", "b"))
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    again = load_photos(tmp_path / "two")
    assert np.array_equal(data.train.index, again.train.index)
    assert data.fingerprint() == again.fingerprint()
    assert data.train.index[0] == path_hash((data.train.paths or ())[0])
    assert data.train.index.min() >= 0


def test_every_class_keeps_an_image_to_train_on(tmp_path: Path) -> None:
    data = load_photos(write_classes(tmp_path, *(f"class{number}" for number in range(30)), count=1))
    assert len(set(data.train.coarse.tolist())) == 30
    assert any("single image" in note for note in data.notes)


def test_each_class_of_a_tiny_folder_is_on_both_sides(tmp_path: Path) -> None:
    data = load_photos(write_classes(tmp_path, "a", "b", count=2))
    assert (data.train.coarse.tolist(), data.test.coarse.tolist()) == ([0, 1], [0, 1])


def test_odd_names_work(tmp_path: Path) -> None:
    names = ["with space", 'it\'s "quoted"', "\u732b", "\U0001f436", "caf\u00e9", "-rf", "a;b&c", "<script>"]
    data = load_photos(write_classes(tmp_path, *names, count=3))
    assert data.coarse_names == tuple(sorted(names))
    assert len(all_paths(data)) == 24


@pytest.mark.skipif(os.name != "posix", reason="only POSIX names may be arbitrary bytes")
def test_names_that_are_not_utf8_work_and_can_be_printed(tmp_path: Path) -> None:
    write_classes(tmp_path, "a", count=3)
    folder = os.fsencode(tmp_path) + b"/b\xff"
    try:
        os.mkdir(folder)  # noqa: PTH102
    except OSError:
        pytest.skip("this file system refuses such names")
    for name in (b"1\xfe.png", b"2.png"):
        with open(folder + b"/" + name, "wb") as file:  # noqa: PTH123
            Image.new("RGB", (20, 16)).save(file, format="PNG")
    data = load_photos(tmp_path)
    assert len(all_paths(data)) == 5
    " ".join((*data.coarse_names, *data.notes)).encode("utf-8")


def test_mixed_sizes_share_a_canvas_and_carry_sizes(tmp_path: Path) -> None:
    write_classes(tmp_path, "a", count=6, size=(40, 20))
    write_classes(tmp_path, "b", count=6, size=(300, 600))
    data = load_photos(tmp_path, image_size=128)
    assert data.train.images.shape[1:] == (3, 128, 128)
    assert data.train.sizes is not None
    assert {tuple(size) for size in data.train.sizes.tolist()} == {(20, 40), (128, 64)}
    row = data.train.coarse.tolist().index(0)
    assert data.train.images[row, 2, :20, :40].min() == 7
    assert data.train.images[row, :, 20:].max() == 0
    assert data.train.images[row, :, :, 40:].max() == 0


@pytest.mark.parametrize(
    ("size", "image_size", "canvas", "family"),
    [
        ((20, 16), None, (16, 20), "cifar"),
        ((64, 64), None, (64, 64), "cifar"),
        ((400, 300), None, (192, 256), "photos"),
        ((400, 300), 64, (48, 64), "cifar"),
        ((20, 16), 64, (16, 20), "cifar"),
    ],
)
def test_canvas_of_equal_images_is_their_size(
    tmp_path: Path, size: tuple[int, int], image_size: int | None, canvas: tuple[int, int], family: str
) -> None:
    data = load_photos(write_classes(tmp_path, "a", "b", count=3, size=size), image_size=image_size)
    assert data.train.images.shape[2:] == canvas
    assert data.train.sizes is None
    assert data.family == family


def test_grey_images_have_one_channel_unless_one_is_coloured(tmp_path: Path) -> None:
    for name in ("a", "b"):
        for number in range(3):
            write_picture(tmp_path / name / f"{number}.png", mode="L", colour=90)
    assert load_photos(tmp_path).train.images.shape[1] == 1
    write_picture(tmp_path / "a" / "colour.png")
    mixed = load_photos(tmp_path)
    assert mixed.train.images.shape[1] == 3


def test_progress_ends_at_the_number_of_files(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    load(str(write_classes(tmp_path, "a", "b")), progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (20, 20)


@pytest.mark.skipif(os.name != "posix", reason="only POSIX names may be arbitrary bytes")
def test_classes_whose_names_are_not_utf8_stay_apart(tmp_path: Path) -> None:
    folders = [os.fsencode(tmp_path) + b"/b" + letter for letter in (b"\xfe", b"\xff", b"\\xff")]
    for folder in folders:
        try:
            os.mkdir(folder)  # noqa: PTH102
        except OSError:
            pytest.skip("this file system refuses such names")
        for number in range(3):
            with open(folder + b"/%d.png" % number, "wb") as file:  # noqa: PTH123
                Image.new("RGB", (20, 16)).save(file, format="PNG")
    data = load_photos(tmp_path)
    assert set(data.train.coarse.tolist()) == {0, 1, 2}
    assert data.coarse_names[1:] == (r"b\xfe", r"b\xff")


def test_names_with_line_breaks_are_shown_on_one_line(tmp_path: Path) -> None:
    write_classes(tmp_path, "a\nb", "c\x1b[31m", count=3)
    (tmp_path / "a\nb" / "x\u2028.png").touch()
    data = load_photos(tmp_path)
    assert data.coarse_names == ("a\\nb", "c\\x1b[31m")
    assert all(note.isprintable() for note in data.notes)

"""Every kind of source is listed and read alike; `embed` and `index` have their own tests of what they make of it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from maskcon._utils.errors import DataError
from maskcon.data import ImageSet
from maskcon.data.builtin.registry import SOURCES
from maskcon.data.collection import gather
from maskcon.data.image_readers import (
    BLOCK_BYTES,
    ImageArrays,
    Images,
    Stamp,
    at_once,
    none_readable,
    with_channels,
)
from tests.finished_run import write_photo
from tests.miniature import miniature

SIDE = 16


def images_of(source: object) -> Images:
    return gather(source, canvas=SIDE, channels=3)  # type: ignore[arg-type]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for seed, name in enumerate(("cat/a.png", "dog/b.png")):
        write_photo(tmp_path / "photos" / name, seed)
    (tmp_path / "photos" / "list.csv").write_text("path,coarse\ndog/b.png,hound\ncat/a.png,\n")
    (tmp_path / "photos" / "twice.csv").write_text("path\ndog/b.png\ncat/a.png\ndog/b.png\n")
    return tmp_path / "photos"


@pytest.mark.parametrize(
    ("name", "paths", "coarse"),
    [
        ("", ["cat/a.png", "dog/b.png"], ["cat", "dog"]),
        ("list.csv", ["dog/b.png", "cat/a.png"], ["hound", None]),
        ("twice.csv", ["dog/b.png", "cat/a.png"], [None, None]),
        ("cat/a.png", ["photos/cat/a.png"], [None]),
    ],
)
def test_files_are_listed_in_the_order_of_their_source_and_read_alike(
    photos, monkeypatch, name, paths, coarse
) -> None:
    monkeypatch.chdir(photos.parent)
    source = str(Path("photos") / name)
    found = images_of(source)
    assert (found.paths, found.coarse, found.unreadable) == (paths, coarse, {})
    assert found.source == str(photos.parent / source)  # from wherever it is asked for next
    files = [Path(found.root) / path for path in paths]
    assert found.stamps == [Stamp(file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    block = found.read(range(len(paths)))
    assert block.rows == list(range(len(paths)))
    for row, file in enumerate(files):
        height, width = (11, 16)  # of 20 x 14 on a canvas of 16
        expected = Image.open(file).resize((width, height), Image.Resampling.LANCZOS, reducing_gap=3.0)
        assert block.sizes is not None
        assert block.sizes[row].tolist() == [height, width]
        pixels = block.images[row, :, :height, :width].transpose(1, 2, 0)
        np.testing.assert_allclose(
            pixels.astype(int), np.asarray(expected), rtol=0, atol=1
        )  # a rounding apart


def test_several_images_start_from_here(photos, monkeypatch) -> None:
    monkeypatch.chdir(photos)
    found = images_of(["dog/b.png", photos / "cat" / "a.png"])
    assert (found.paths, found.root) == (["dog/b.png", str(photos / "cat" / "a.png")], str(photos))
    assert len(found.read([1, 0]).images) == 2


def test_special_files_are_named_and_not_opened(tmp_path) -> None:
    write_photo(tmp_path / "a.png", 0)
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "folder.png").mkdir()
    names = ["a.png", "pipe.png", "folder.png", "absent.png", "zero\0byte.png"]
    (tmp_path / "list.csv").write_text("path\n" + "\n".join(names) + "\n", encoding="utf-8")
    found = images_of(tmp_path / "list.csv")
    assert found.paths == ["a.png"]
    assert list(found.unreadable) == names[1:]
    assert found.unreadable["pipe.png"] == found.unreadable["folder.png"] == "not a regular file"


def test_a_linked_manifest_names_what_lies_beside_the_file_itself_as_in_training(tmp_path) -> None:
    write_photo(tmp_path / "there" / "a.png", 0)
    (tmp_path / "there" / "list.csv").write_text("path\na.png\n")
    (tmp_path / "link.csv").symlink_to(tmp_path / "there" / "list.csv")
    found = images_of(tmp_path / "link.csv")
    assert (found.root, found.paths) == (str(tmp_path / "there"), ["a.png"])


def test_names_are_those_of_the_system_even_if_they_are_no_text(tmp_path) -> None:
    write_photo(tmp_path / "in" / "a.png", 0)
    odd = os.fsdecode(b"caf\xe9.png")
    (tmp_path / "in" / "a.png").rename(tmp_path / "in" / odd)
    found = images_of(tmp_path / "in")
    assert found.paths == [odd]
    assert found.read([0]).rows == [0]


def test_a_file_that_cannot_be_read_or_changes_meanwhile_is_left_out_of_the_block(photos) -> None:
    (photos / "cat" / "text.png").write_text("no image")
    write_photo(photos / "dog" / "c.png", 3)
    found = images_of(photos)
    write_photo(photos / "dog" / "b.png", 4, (30, 30))
    (photos / "dog" / "c.png").unlink()
    block = found.read([0, 1, 2, 3])
    assert block.rows == [0]
    assert len(block.images) == 1
    assert [block.failures[row] for row in (1, 2, 3)] == [
        "not an image of a known format",
        "changed while it was read",
        "No such file or directory",
    ]
    assert found.digests([3, 0])[0] is None


def test_a_dataset_by_name_is_found_by_that_name_again() -> None:
    found = images_of("embedded")
    assert (found.source, found.root, found.paths[0]) == ("embedded", "", "train/0")
    assert found.read([0]).images.shape[1:] == (3, 32, 32)  # grey ones, and in the size they have


def test_a_name_goes_before_a_folder_of_that_name(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("maskcon.data.collection.load", lambda name, **_: miniature(train=8, test=4))
    for name in ("embedded", "hf:user"):
        write_photo(tmp_path / name / "a.png", 0)
        assert len(images_of(name).paths) == 12
    assert images_of("./embedded").paths == ["a.png"]


def test_a_dataset_that_is_fetched_reports_progress(monkeypatch) -> None:
    def listing(root, *, variant, download, progress):
        progress(5, 9)
        raise DataError("enough")

    monkeypatch.setitem(SOURCES, "cars196", replace(SOURCES["cars196"], listing=listing))
    told: list[tuple[int, int]] = []
    with pytest.raises(DataError, match="enough"):
        gather("cars196", canvas=SIDE, channels=3, progress=lambda *counts: told.append(counts))
    assert told == [(5, 9)]


def test_arrays_have_their_paths_as_names_unless_two_are_the_same() -> None:
    data = miniature(train=2, test=1)
    named = replace(data, train=replace(data.train, paths=("a", "b")), test=replace(data.test, paths=("c",)))
    assert images_of(named).paths == ["a", "b", "c"]
    twice = replace(named, test=replace(named.test, paths=("b",)))
    assert images_of(twice).paths == ["train/0", "train/1", "test/10000"]


def test_equal_bytes_in_another_shape_are_another_image() -> None:
    sizes = np.array([[4, 8], [8, 4]], dtype=np.int32)
    numbers = np.arange(2, dtype=np.int64)
    part = ImageSet(np.full((2, 1, 8, 8), 7, dtype=np.uint8), 0 * numbers, None, numbers, sizes)
    found = ImageArrays("white", replace(miniature(), train=part, test=part), channels=1)
    first, second = found.digests([0, 1])
    assert first != second
    assert found.stamps[0] != found.stamps[1]
    assert found.image(1).shape == (1, 8, 4)


def test_grey_and_colour_are_turned_into_each_other_as_pillow_does() -> None:
    colour = np.random.default_rng(0).integers(0, 256, (2, 3, 8, 8), dtype=np.uint8)
    expected = [np.asarray(Image.fromarray(image.transpose(1, 2, 0)).convert("L")) for image in colour]
    np.testing.assert_array_equal(with_channels(colour, 1)[:, 0], np.stack(expected))
    np.testing.assert_array_equal(with_channels(colour[:, :1], 3), np.repeat(colour[:, :1], 3, axis=1))


def test_memory_is_bounded_however_large_the_images(photos) -> None:
    small, large = images_of(photos), gather(photos, canvas=4096, channels=3)
    assert at_once(small, 64) == 64
    assert at_once(large, 64) * large.image_bytes <= BLOCK_BYTES
    assert at_once(gather(photos, canvas=40_960, channels=3), 64) == 1


def test_messages_for_no_image_and_for_none_readable(tmp_path) -> None:
    (tmp_path / "notes.md").write_text("")
    empty = images_of(tmp_path)
    assert none_readable(empty, empty.unreadable) == (
        f"no image found in {tmp_path} or below it (1 other file); give a folder of images"
    )
    (tmp_path / "one.heic").write_text("")
    (tmp_path / "two.png").symlink_to("absent")
    none = images_of(tmp_path)
    assert none.paths == []
    assert "none of the 2 images of" in none_readable(none, none.unreadable)
    assert "(.heic cannot be read; convert it to JPEG)" in none_readable(none, none.unreadable)

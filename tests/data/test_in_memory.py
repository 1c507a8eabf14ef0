from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import maskcon
from maskcon._utils.errors import DataError, UsageError
from maskcon.data import Dataset, from_arrays
from tests.miniature import TINY


def colour_images(count: int, height: int = 12, width: int = 10) -> np.ndarray:
    return np.random.default_rng(count).integers(0, 256, (count, height, width, 3)).astype(np.uint8)


def sides(data: Dataset) -> dict[bytes, bool]:
    """Content of each image -> is it held out?"""
    return {
        image.tobytes(): held
        for held, part in ((False, data.train), (True, data.test))
        for image in part.images
    }


def test_arrays_keep_pixels_and_labels() -> None:
    images, labels = colour_images(30), ["dog", "cat", "dog"] * 10
    data = from_arrays(images, labels, name="pets")
    assert (data.name, data.coarse_names, data.fine_names) == ("pets", ("cat", "dog"), None)
    expected = {
        image.transpose(2, 0, 1).tobytes(): label for image, label in zip(images, labels, strict=True)
    }
    for part in (data.train, data.test):
        for image, number in zip(part.images, part.coarse, strict=True):
            assert expected.pop(image.tobytes()) == data.coarse_names[number]
    assert not expected


def test_layouts_of_arrays_give_the_same_data() -> None:
    images, labels = colour_images(20), [0, 1] * 10
    last = from_arrays(images, labels)
    first = from_arrays(np.ascontiguousarray(images.transpose(0, 3, 1, 2)), labels, channels="first")
    assert last.fingerprint() == first.fingerprint()
    grey = from_arrays(images[..., 0], labels)
    assert grey.train.images.shape[1:] == (1, 12, 10)


def test_whole_numbers_are_ordered_by_value() -> None:
    data = from_arrays(colour_images(30), np.array([10, 2, -1] * 10), np.array([100, 20, 3] * 10))
    assert data.coarse_names == ("-1", "2", "10")
    assert data.fine_names == ("3", "20", "100")
    assert data.coarse_of_fine == (0, 1, 2)


def test_images_stay_on_their_side_when_others_are_added() -> None:
    images, labels = colour_images(80), ["a", "b"] * 40
    before = sides(from_arrays(images, labels))
    more = np.concatenate([colour_images(50), images])
    after = sides(from_arrays(more, ["b", "a"] * 25 + labels))
    assert {key: after[key] for key in before} == before
    by_id = from_arrays(images, labels, ids=[f"n{number}" for number in range(80)])
    added = from_arrays(
        more, ["b", "a"] * 25 + labels, ids=[*range(50), *(f"n{number}" for number in range(80))]
    )
    assert {key: sides(added)[key] for key in before} == sides(by_id)
    assert set(by_id.train.index.tolist()) <= set(added.train.index.tolist())


def test_equal_images_get_ids_of_their_own() -> None:
    images = np.repeat(colour_images(10), 3, axis=0)
    data = from_arrays(images, ["a", "b", "b"] * 10)
    assert len({*data.train.index.tolist(), *data.test.index.tolist()}) == 30


def test_own_test_part_is_kept() -> None:
    data = from_arrays(
        colour_images(9), ["a", "b", "b"] * 3, test=(colour_images(4), ["b", "a"] * 2, ["y", "x"] * 2)
    )
    assert (len(data.train), len(data.test)) == (9, 4)
    assert data.train.fine is None
    assert data.test.fine is not None
    assert (data.fine_names, data.coarse_of_fine) == (("x", "y"), (0, 1))


def test_lists_of_images_paths_and_arrays_of_any_size(tmp_path: Path) -> None:
    Image.new("RGB", (40, 20), (9, 8, 7)).save(tmp_path / "a.png")
    images: list[Any] = [
        Image.new("RGB", (30, 10), (255, 0, 0)),
        tmp_path / "a.png",
        str(tmp_path / "a.png"),
        np.full((6, 5, 3), 77, np.uint8),
        Image.new("L", (4, 4), 50),
        Image.new("P", (4, 4)),
    ]
    data = from_arrays(images, ["a", "a", "b", "b", "a", "b"], ids=range(6))
    assert data.train.images.shape[1:] == (3, 40, 40)
    found = sorted(
        tuple(size) for part in (data.train, data.test) for size in np.asarray(part.sizes).tolist()
    )
    assert found == [(4, 4), (4, 4), (6, 5), (10, 30), (20, 40), (20, 40)]
    small = from_arrays(images, ["a", "a", "b", "b", "a", "b"], image_size=16)
    assert small.train.images.shape[1:] == (3, 16, 16)


def test_list_of_equal_grey_images_needs_no_canvas() -> None:
    data = from_arrays([Image.new("L", (9, 5), shade) for shade in range(12)], ["a", "b"] * 6)
    assert data.train.images.shape[1:] == (1, 5, 9)
    assert data.train.sizes is None


def test_lists_keep_sides_when_a_coloured_or_larger_image_is_added() -> None:
    pictures = [Image.new("L", (9, 5), shade) for shade in range(40)]
    before = from_arrays(pictures, ["a", "b"] * 20)
    held = {int(image.max()) for image in before.test.images}
    after = from_arrays([*pictures, Image.new("RGB", (50, 50), "red")], [*["a", "b"] * 20, "c"])
    assert held == {int(image[0].max()) for image in after.test.images}


@pytest.mark.parametrize(
    ("images", "labels", "options", "message"),
    [
        (np.zeros((4, 8, 8, 3), np.float32), "abab", {}, r"must be uint8 .*got float32"),
        (np.zeros((4, 3, 8, 8), np.uint8), "abab", {}, "did you mean channels='first'"),
        (np.zeros((4, 8), np.uint8), "abab", {}, r"must be uint8 \[N, H, W\]"),
        (np.zeros((4, 8, 8), np.uint8), "aba", {}, "4 images and 3 coarse labels"),
        (np.zeros((1, 8, 8), np.uint8), "ab", {}, "1 image and 2 coarse labels"),
        (np.zeros((0, 8, 8), np.uint8), "", {}, "there are no images"),
        (np.zeros((2, 8, 8), np.uint8), [1.5, 2.0], {}, "label of image 0 is 1.5; text or whole numbers"),
        (np.zeros((2, 8, 8), np.uint8), ["a", None], {}, "label of image 1 is None"),
        (
            np.zeros((2, 8, 8), np.uint8),
            "ab",
            {"fine": ["x", "x"]},
            "fine label 'x' lies in coarse class 'b'",
        ),
        (np.zeros((2, 8, 8), np.uint8), "ab", {"ids": ["n", "n"]}, "1 different ids for 2 images"),
        (np.zeros((2, 8, 8), np.uint8), "ab", {"image_size": 8}, "is for lists"),
        (np.zeros((2, 8, 8), np.uint8), "ab", {"fraction": 2.0}, "between 0 and 1"),
        ([object(), object()], "ab", {}, "not object"),
        (["absent.png"], "a", {}, r"cannot read absent\.png"),
        ("a.png", "a", {}, "as an array or a list"),
    ],
)
def test_unusable_arrays_are_clear_errors(images: Any, labels: Any, options: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        from_arrays(images, list(labels), **options)


def test_test_part_of_another_shape_is_a_clear_error() -> None:
    with pytest.raises(DataError, match="both need one channel count and canvas"):
        from_arrays(colour_images(4), "abab", test=(colour_images(4, 9, 9), "abab"))


def test_fit_takes_arrays(tmp_path: Path) -> None:
    data = from_arrays(colour_images(60, 16, 16), ["a", "b"] * 30, ["x", "y", "z", "v"] * 15)
    run = maskcon.fit(data, epochs=1, settings=TINY, out=tmp_path / "run")
    assert 0 <= run.recall[1] <= 1
    with pytest.raises(UsageError, match="a Dataset from Python has to be passed again"):
        _ = run.source

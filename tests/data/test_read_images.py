from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from maskcon._utils.errors import DataError, UsageError
from maskcon.data import read_images


def test_paths_and_pillow_images_of_any_size_share_a_canvas(tmp_path):
    tall = Image.new("RGB", (20, 60), (200, 10, 10))
    grey = Image.new("L", (10, 5), 77)
    tall.save(tmp_path / "tall.png")
    array, sizes = read_images(
        [tmp_path / "tall.png", grey, str(tmp_path / "tall.png")], channels=3, canvas=32
    )
    assert array.shape == (3, 3, 32, 32)
    assert sizes.tolist() == [[32, 11], [5, 10], [32, 11]]
    assert np.array_equal(array[0], array[2])
    assert array[0, :, 10, 5].tolist() == [200, 10, 10]
    assert (array[1, :, :5, :10] == 77).all()
    assert (array[1, :, 5:] == 0).all()


def test_a_grey_encoder_gets_grey_images():
    array, _ = read_images([Image.new("RGB", (8, 8), (255, 255, 255))], channels=1, canvas=8)
    assert array.shape == (1, 1, 8, 8)
    assert (array == 255).all()


def test_an_image_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "broken.jpg").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"broken\.jpg"):
        read_images([tmp_path / "broken.jpg"], channels=3, canvas=32)
    with pytest.raises(DataError, match=r"missing\.jpg"):
        read_images([tmp_path / "missing.jpg"], channels=3, canvas=32)


def test_other_things_than_images_are_refused():
    with pytest.raises(UsageError, match="not int"):
        read_images([3], channels=3, canvas=32)


def test_a_given_image_is_left_as_it_was(tmp_path):
    Image.new("RGB", (800, 600)).save(tmp_path / "large.jpg")
    with Image.open(tmp_path / "large.jpg") as image:
        read_images([image], channels=3, canvas=32)
        assert image.size == (800, 600)


def test_one_image_without_a_list_is_refused(tmp_path):
    for image in ("a.jpg", tmp_path / "a.jpg", Image.new("RGB", (8, 8))):
        with pytest.raises(UsageError, match="as a list"):
            read_images(image, channels=3, canvas=32)

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskcon._utils.errors import DataError, UsageError
from maskcon.data import arrays
from maskcon.data.arrays import (
    are_files,
    checked_range,
    chosen_shape,
    flattened,
    images_of,
    planes,
    value_range,
)


@given(
    count=st.integers(1, 5),
    height=st.integers(1, 6),
    width=st.integers(1, 6),
    channels=st.sampled_from([1, 3]),
    seed=st.integers(0, 1000),
)
def test_every_layout_gives_the_same_image_pixel_by_pixel(count, height, width, channels, seed):
    pixels = np.random.default_rng(seed).integers(0, 256, (count, channels, height, width), dtype=np.uint8)
    last = pixels.transpose(0, 2, 3, 1)
    for array, place in ((pixels, "first"), (last, "last")):
        rows, shape = flattened(array)
        assert (rows.shape, shape) == ((count, channels * height * width), array.shape[1:])
        np.testing.assert_array_equal(images_of(rows, shape, place, (0.0, 255.0)), pixels)
        assert planes(shape, place) == (channels, height, width)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.floats(-100, 100), st.floats(0.01, 100))
def test_levels_match_a_loop_of_plain_arithmetic(values, low, span):
    row = np.array([values])
    found = images_of(row, (1, len(values)), "last", (low, low + span))[0, 0, 0]
    for value, level in zip(values, found, strict=True):
        share = min(1.0, max(0.0, (value - low) / ((low + span) - low)))
        assert int(level) == int(share * 255 + 0.5)


def test_bytes_stay_unchanged_unless_a_range_is_given():
    row = np.arange(256, dtype=np.uint8)[None]
    np.testing.assert_array_equal(images_of(row, (16, 16), "last", value_range(row)).ravel(), row[0])
    stretched = images_of(row, (16, 16), "last", (0.0, 51.0)).ravel()
    np.testing.assert_array_equal(stretched, np.minimum(np.arange(256) * 5, 255))


def test_many_images_are_converted_in_parts_to_the_same_pixels(monkeypatch):
    rows = np.random.default_rng(0).random((50, 12))
    whole = images_of(rows, (2, 2, 3), "last", (0.0, 1.0))
    monkeypatch.setattr(arrays, "CHUNK_VALUES", 100)
    np.testing.assert_array_equal(images_of(rows, (2, 2, 3), "last", (0.0, 1.0)), whole)


def test_images_without_any_contrast_are_black():
    assert images_of(np.full((2, 4), 7.5), (2, 2), "last", (7.5, 7.5)).max() == 0


@pytest.mark.parametrize(
    "shape", [(8,), (2, 2, 2, 2), (0, 64), (-1, -1), (-2, 32), (8, 8.5), "88", 64, (None, 8), ("a", 8)]
)
def test_invalid_image_shape_is_refused(shape):
    with pytest.raises(UsageError, match="image_shape="):
        chosen_shape(shape, 64)


@pytest.mark.parametrize("shape", [(8, 9), (-1, 7), (4, 4)])
def test_a_shape_that_does_not_fit_the_values_is_refused(shape):
    with pytest.raises(DataError, match="64 values"):
        chosen_shape(shape, 64)


@pytest.mark.parametrize(
    "given_range", [(1, 0), (0, 0), (0, float("inf")), (0,), 5, ("a", "b"), (0, float("nan"))]
)
def test_invalid_range_is_refused(given_range):
    with pytest.raises(UsageError, match="pixel_range="):
        checked_range(given_range)


def test_lists_of_numbers_are_no_files():
    assert not are_files([[1, 2], [3, 4]])
    assert not are_files(np.zeros(4))
    assert not are_files([])
    assert not are_files(np.array([["a"], ["b"]]))
    assert are_files(["a.jpg", "b.jpg"])

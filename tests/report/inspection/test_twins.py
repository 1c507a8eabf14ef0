from __future__ import annotations

import itertools
import tracemalloc
from io import BytesIO

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from maskcon.report.inspection import near_duplicates
from maskcon.report.inspection.near_duplicates import (
    TINY_SIDE,
    confirmed,
    groups_of,
    has_contrast,
    image_hash,
    near_pairs,
)


def scene(seed: int, size: tuple[int, int] = (160, 120)) -> Image.Image:
    """Smooth blobs of colour: low frequencies as photographs have them."""
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)


def grey(picture: Image.Image) -> NDArray[np.uint8]:
    return np.asarray(picture.convert("L").resize((32, 32), Image.Resampling.BILINEAR))


def as_jpeg(picture: Image.Image, quality: int) -> Image.Image:
    written = BytesIO()
    picture.save(written, "JPEG", quality=quality)
    return Image.open(BytesIO(written.getvalue()))


def bits_apart(one: Image.Image, other: Image.Image) -> int:
    return (image_hash(grey(one)) ^ image_hash(grey(other))).bit_count()


@pytest.mark.parametrize("seed", range(8))
def test_a_copy_keeps_its_hash_through_size_compression_and_brightness(seed):
    picture = scene(seed)
    brighter = picture.point(lambda value: min(255, value + 12))
    for copy in (picture.resize((80, 60)), as_jpeg(picture, 30), brighter):
        assert bits_apart(picture, copy) <= near_duplicates.RADIUS


def test_other_images_are_far_apart():
    apart = [bits_apart(scene(a), scene(b)) for a, b in itertools.combinations(range(20), 2)]
    assert min(apart) > 2 * near_duplicates.RADIUS
    assert 24 < np.mean(apart) < 40  # half of the bits, as of coins


def loop_pairs(hashes: NDArray[np.uint64], radius: int) -> list[tuple[int, int]]:
    """The slow and obvious way."""
    return [
        (i, j)
        for i, j in itertools.combinations(range(len(hashes)), 2)
        if (int(hashes[i]) ^ int(hashes[j])).bit_count() <= radius
    ]


@pytest.mark.parametrize("radius", [0, 1, 3, 5, 8])
def test_near_pairs_are_those_of_the_loop_each_once(radius):
    generator = np.random.default_rng(radius)
    hashes = generator.integers(0, 2**64, 60, dtype=np.uint64)
    near = hashes[:40].copy()
    for place in range(40):  # 0 to 10 bits changed
        for bit in generator.choice(64, place % 11, replace=False):
            near[place] ^= np.uint64(1 << int(bit))
    everything = np.concatenate([hashes, near, hashes[:3]])
    found, too_many = near_pairs(everything, radius)
    assert not too_many
    assert [tuple(pair) for pair in found.tolist()] == loop_pairs(everything, radius)


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_images_have_no_pairs(count):
    assert near_pairs(np.zeros(count, dtype=np.uint64))[0].shape == (0, 2)


def test_more_pairs_than_can_be_kept_are_cut_and_said(monkeypatch):
    monkeypatch.setattr(near_duplicates, "MOST_PAIRS", 100)
    found, too_many = near_pairs(np.zeros(50, dtype=np.uint64))
    assert too_many
    assert len(found) == 100


def test_a_hundred_thousand_images_are_searched_in_seconds():
    import time

    generator = np.random.default_rng(0)
    hashes = generator.integers(0, 2**64, 100_000, dtype=np.uint64)
    planted = [(7, 99_000), (123, 54_321)]
    for first, second in planted:
        hashes[second] = hashes[first] ^ np.uint64(0b1011 << 20)
    begun = time.process_time()
    found, _ = near_pairs(hashes)
    assert time.process_time() - begun < 30  # about 3 on a laptop's core
    assert [tuple(pair) for pair in found.tolist()] == planted


def test_the_same_shape_in_another_colour_is_another_image():
    red, blue = (np.zeros((3, 16, 16), np.uint8) for _ in range(2))
    red[0, 4:12, 4:12] = 220
    blue[2, 4:12, 4:12] = 220
    brighter = np.clip(red.astype(int) + 10, 0, 255).astype(np.uint8)
    tiny = np.stack([red, blue, brighter])
    pairs = np.array([[0, 1], [0, 2]])
    assert confirmed(pairs, tiny).tolist() == [[0, 2]]
    assert confirmed(pairs[:0], tiny).shape == (0, 2)


def test_a_pattern_on_a_dark_shape_is_another_image():
    """Products on a plain ground: outlines alike, differences small beside 255, but large beside the contrast."""
    plain, striped = (np.zeros((3, 16, 16), np.uint8) for _ in range(2))
    plain[:, 2:14, 5:11] = 60
    striped[:, 2:14, 5:11] = 60
    striped[:, 2:14:2, 5:11] = 20
    lighter = np.clip(plain * 1.1, 0, 255).astype(np.uint8)
    tiny = np.stack([plain, striped, lighter])
    assert np.sqrt(((tiny[0].astype(float) - tiny[1]) ** 2).mean()) < near_duplicates.LARGEST_DIFFERENCE
    assert confirmed(np.array([[0, 1], [0, 2]]), tiny).tolist() == [[0, 2]]


def test_plain_surfaces_have_nothing_to_compare():
    assert not has_contrast(np.full((32, 32), 90, np.uint8))
    assert has_contrast(grey(scene(0)))


def test_groups_join_what_is_linked_through_others():
    assert groups_of([(5, 6), (0, 9), (6, 9), (2, 3)]) == [(0, 5, 6, 9), (2, 3)]
    assert groups_of([]) == []


def test_many_pairs_are_compared_in_little_memory() -> None:
    tiny = np.random.default_rng(0).integers(0, 256, (50, 3, TINY_SIDE, TINY_SIDE)).astype(np.uint8)
    pairs = np.random.default_rng(1).integers(0, 50, (40_000, 2))
    tracemalloc.start()
    found = confirmed(pairs, tiny)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.array_equal(found, pairs[pairs[:, 0] == pairs[:, 1]])
    assert peak < 100e6  # all at once took 700 MB

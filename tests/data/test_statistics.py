from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from maskcon.data import ImageSet, dataset
from maskcon.data.dataset import channel_statistics


def part_of(images: np.ndarray, sizes: np.ndarray | None = None) -> ImageSet:
    count = len(images)
    return ImageSet(images, np.zeros(count, np.int64), None, np.arange(count), sizes)


@pytest.mark.parametrize("chunk", [1, 2, 1 << 22])
@pytest.mark.parametrize("padded", [False, True])
def test_statistics_are_of_the_valid_pixels_alone(
    chunk: int, padded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset, "MOST_VALUES", chunk * 3 * 6 * 5)
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (5, 3, 6, 5), dtype=np.uint8)
    sizes = random.integers(1, 6, (5, 2)).astype(np.int32) if padded else None
    valid: list[list[float]] = [[], [], []]
    for row in range(5):
        height, width = (6, 5) if sizes is None else sizes[row]
        for channel in range(3):
            valid[channel] += images[row, channel, :height, :width].ravel().tolist()
    mean, deviation = channel_statistics(part_of(images, sizes))
    assert mean == pytest.approx([np.mean(levels) / 255 for levels in valid], abs=1e-6)
    assert deviation == pytest.approx([np.std(levels) / 255 for levels in valid], abs=1e-9)


def test_statistics_of_large_images_take_little_memory() -> None:
    images = np.broadcast_to(np.uint8(100), (600, 3, 96, 96))  # 16 million values, in no memory of their own
    tracemalloc.start()
    try:
        channel_statistics(part_of(images))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 150e6

"""ImageNet 32x32 in miniature: batch files as the official ones, and what loading them must give."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from maskcon.data.builtin import imagenet32
from maskcon.data.builtin.imagenet32 import FILE_LABELS, GROUPING
from maskcon.data.dataset import Dataset
from tests.data.miniatures import random_pixels

NAMES = (*imagenet32.TRAIN_FILES, imagenet32.TEST_FILE)


def batch_bytes(entries: dict[str, Any]) -> bytes:
    """As Python 3.5 with numpy 1 wrote the official files: protocol 3, numpy.core names."""
    return pickle.dumps(entries, protocol=3).replace(b"numpy._core.multiarray", b"numpy.core.multiarray")


def batch_labels(number: int, count: int) -> list[int]:
    return [(37 * number + 101 * row) % 1000 + 1 for row in range(count)]


def write_batch(path: Path, number: int, count: int = 6, **change: Any) -> None:
    """Batch 1..10, or 11 for val_data, which has no mean."""
    entries: dict[str, Any] = {
        "data": random_pixels(count, seed=number),
        "labels": batch_labels(number, count),
    }
    if number <= 10:
        entries["mean"] = np.linspace(0, 255, 3072)  # float64
    path.write_bytes(batch_bytes(entries | change))


def write_imagenet32(root: Path, train: str = ".", test: str = ".", count: int = 6) -> None:
    for number, name in enumerate(NAMES, start=1):
        folder = root / (test if name == "val_data" else train)
        folder.mkdir(parents=True, exist_ok=True)
        write_batch(folder / name, number, count)


def assert_is_the_miniature(data: Dataset, count: int = 6) -> None:
    order = {label: fine for fine, label in enumerate(FILE_LABELS)}
    expected = [order[label] for number in range(1, 11) for label in batch_labels(number, count)]
    assert data.train.fine is not None
    assert data.train.fine.tolist() == expected
    assert data.train.coarse.tolist() == [GROUPING.coarse_of[fine] for fine in expected]
    pixels = np.concatenate([random_pixels(count, seed=number) for number in range(1, 11)])
    assert np.array_equal(data.train.images, pixels.reshape(-1, 3, 32, 32))
    assert np.array_equal(data.test.images, random_pixels(count, seed=11).reshape(-1, 3, 32, 32))


def assert_nothing_was_kept(cache: Path) -> None:
    assert not cache.exists() or list(cache.iterdir()) == []

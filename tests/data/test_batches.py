from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maskcon._utils.errors import CorruptFileError
from maskcon.data.builtin.imagenet32 import load_imagenet32
from tests.data.miniature_imagenet32 import (
    assert_nothing_was_kept,
    batch_bytes,
    write_batch,
    write_imagenet32,
)
from tests.data.miniatures import random_pixels


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": random_pixels(6, seed=0)[:, :768]}, r"3072.*got uint8 \(6, 768\)"),
        ({"data": random_pixels(6, seed=0).astype(np.float64)}, "got float64"),
        ({"data": "text"}, "got str"),
        ({"labels": [1] * 5}, "6 whole numbers"),
        ({"labels": ["1"] * 6}, "6 whole numbers"),
        ({"labels": [0] * 6}, r"1\.\.1000"),
        ({"labels": [1001] * 6}, r"1\.\.1000"),
        ({"data": random_pixels(0, seed=0), "labels": []}, "no image"),
        ({"mean": np.arange(3, dtype=np.int64)}, "type 'i8'"),
        ({"mean": print}, "print"),
    ],
)
def test_batches_with_wrong_contents_are_refused_by_name(
    tmp_path: Path, conversions: Path, change: dict[str, Any], message: str
) -> None:
    write_imagenet32(tmp_path / "root")
    write_batch(tmp_path / "root" / "train_data_batch_4", 4, **change)
    with pytest.raises(CorruptFileError, match=f"train_data_batch_4.*{message}"):
        load_imagenet32(tmp_path / "root")
    assert_nothing_was_kept(conversions)


@pytest.mark.parametrize("name", ["train_data_batch_10", "val_data"])
def test_truncated_batch_is_refused_and_nothing_is_kept(tmp_path: Path, conversions: Path, name: str) -> None:
    write_imagenet32(tmp_path / "root")
    path = tmp_path / "root" / name
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(CorruptFileError, match=f"{name}: damaged pickle"):
        load_imagenet32(tmp_path / "root")
    assert_nothing_was_kept(conversions)


class RunsOnLoading:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.marker),)


def test_hostile_pickle_is_refused_by_name(tmp_path: Path, conversions: Path) -> None:
    root, marker = tmp_path / "root", tmp_path / "marker"
    write_imagenet32(root)
    hostile = batch_bytes({"data": random_pixels(1, seed=0), "labels": [1], "more": RunsOnLoading(marker)})
    (root / "val_data").write_bytes(hostile)
    with pytest.raises(CorruptFileError, match=r"val_data: it names 'posix\.mkdir'"):
        load_imagenet32(root)
    assert not marker.exists()
    pickle.loads(hostile)  # it would have run
    assert marker.exists()
    assert_nothing_was_kept(conversions)

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from maskcon._utils.errors import CorruptFileError, DataError
from maskcon.data import load
from maskcon.data.builtin import fashion_mnist
from maskcon.data.builtin.fashion_mnist import read_idx
from tests.data.miniatures import idx_bytes, write_fashion_mnist


@pytest.fixture(autouse=True)
def _no_system_copy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(fashion_mnist, "DEBIAN_FOLDER", tmp_path / "nowhere")


def test_files_are_read_with_a_black_border(tmp_path: Path) -> None:
    write_fashion_mnist(tmp_path / "fashion-mnist")
    data = load("fashion-mnist", root=tmp_path)
    raw = read_idx(tmp_path / "fashion-mnist" / "train-images-idx3-ubyte.gz", (28, 28))
    assert data.train.images.shape == (30, 1, 32, 32)
    assert np.array_equal(data.train.images[:, 0, 2:30, 2:30], raw)
    assert data.train.images.sum() == raw.sum()
    assert data.train.fine is not None
    assert data.train.fine[:3].tolist() == [0, 1, 2]
    assert data.train.coarse[:3].tolist() == [0, 1, 0]


def test_system_copy_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_fashion_mnist(tmp_path / "system")
    monkeypatch.setattr(fashion_mnist, "DEBIAN_FOLDER", tmp_path / "system")
    assert len(load("fashion-mnist", root=tmp_path).test) == 30


def test_missing_files_say_where_to_put_them(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"fashion-mnist.*train-images-idx3-ubyte\.gz"):
        load("fashion-mnist", root=tmp_path)


GOOD = idx_bytes(np.arange(24, dtype=np.uint8).reshape(2, 3, 4))
# Without the time: these bytes become part of the tests' names, which must not change from second to second.
GZIPPED = gzip.compress(GOOD, mtime=0)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        GOOD[:10],
        GOOD[:-1],
        GOOD + b"x",
        b"\x00\x00\x0d\x03" + GOOD[4:],
        b"\x00\x00\x08\x01" + GOOD[4:],
        b"\x00\x01\x08\x03" + GOOD[4:],
        GOOD[:4] + b"\xff" * 12 + GOOD[16:],
        GZIPPED[:-4],
        GZIPPED[:14] + b"\xff\xff" + GZIPPED[16:],
    ],
)
def test_damaged_idx_files_are_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(data if data.startswith(GZIPPED[:4]) else gzip.compress(data))
    with pytest.raises(CorruptFileError, match=r"not an IDX file|damaged gzip"):
        read_idx(path, (3, 4))


def test_idx_array_comes_back_as_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(gzip.compress(GOOD))
    assert np.array_equal(read_idx(tmp_path / "file", (3, 4)), np.arange(24).reshape(2, 3, 4))


def test_label_out_of_range_is_refused(tmp_path: Path) -> None:
    write_fashion_mnist(tmp_path / "fashion-mnist")
    labels = tmp_path / "fashion-mnist" / "t10k-labels-idx1-ubyte.gz"
    labels.write_bytes(gzip.compress(idx_bytes(np.full(30, 10, dtype=np.uint8))))
    with pytest.raises(CorruptFileError, match="the highest is 10"):
        load("fashion-mnist", root=tmp_path)

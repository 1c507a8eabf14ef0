from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from maskcon._utils.errors import CorruptFileError
from maskcon.data import Dataset, load
from maskcon.data.builtin import fashion_mnist


@pytest.fixture(scope="module")
def data() -> Dataset:
    return load("embedded")


def raw_pixel_recall(data: Dataset, ks: tuple[int, ...]) -> list[float]:
    """Share of test images with their fine kind among the k most similar others, by cosine of raw pixels."""
    flat = data.test.images.reshape(len(data.test), -1).astype(np.float64)
    flat /= np.linalg.norm(flat, axis=1, keepdims=True)
    similarity = flat @ flat.T
    np.fill_diagonal(similarity, -np.inf)  # the image itself, by position
    assert data.test.fine is not None
    nearest = np.argsort(-similarity, axis=1, kind="stable")[:, : max(ks)]
    hit = data.test.fine[nearest] == data.test.fine[:, None]
    return [float(hit[:, :k].any(axis=1).mean()) for k in ks]


def test_embedded_set_is_balanced_and_grouped(data: Dataset) -> None:
    assert data.train.images.shape == (6000, 1, 32, 32)
    assert data.test.images.shape == (2000, 1, 32, 32)
    assert data.train.fine is not None
    assert data.test.fine is not None
    assert np.bincount(data.train.fine).tolist() == [600] * 10
    assert np.bincount(data.test.fine).tolist() == [200] * 10
    assert np.bincount(data.train.coarse).tolist() == [2400, 1200, 1800, 600]
    groups: dict[str, set[str]] = {}
    for fine, coarse in enumerate(data.coarse_of_fine or ()):
        groups.setdefault(data.coarse_names[coarse], set()).add((data.fine_names or ())[fine])
    assert groups["upper body"] == {"T-shirt/top", "Pullover", "Coat", "Shirt"}
    assert groups["footwear"] == {"Sandal", "Sneaker", "Ankle boot"}
    assert groups["full length"] == {"Trouser", "Dress"}
    assert groups["bag"] == {"Bag"}


def test_no_id_is_in_both_parts(data: Dataset) -> None:
    assert not set(data.train.index.tolist()) & set(data.test.index.tolist())


def test_recall_of_raw_pixels_is_about_half_as_documented(data: Dataset) -> None:
    recall = raw_pixel_recall(data, (1, 2, 5, 10))
    assert recall == pytest.approx(
        [0.4970, 0.6555, 0.8360, 0.9335], abs=0.0011
    )  # two ties may fall otherwise


def test_packaged_file_is_small() -> None:
    with files("maskcon.data.builtin").joinpath("embedded.npz").open("rb") as file:
        assert len(file.read()) < 4_000_000


def test_grey_levels_are_as_documented(data: Dataset) -> None:
    levels = np.union1d(data.train.images, data.test.images).tolist()
    assert levels == [*range(0, 253, 4), 255]


def flipped(whole: bytes, place: int) -> bytes:
    """With the lowest bit of one byte turned."""
    return whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: b"",
        lambda whole: whole[: len(whole) // 2],
        lambda whole: whole[:-1],
        lambda whole: b"\x80\x04N." + whole[4:],  # the beginning of a pickle
        lambda whole: flipped(whole, whole.index(b"PK\x01\x02") + 8),  # its flags
        lambda whole: flipped(whole, whole.index(b"PK\x01\x02") + 10),
        lambda whole: flipped(whole, 99_999),
    ],
    ids=["empty", "half", "short", "pickle", "encrypted", "compression", "flipped bit"],
)
def test_a_damaged_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage) -> None:
    whole = files("maskcon.data.builtin").joinpath("embedded.npz").read_bytes()
    damaged = damage(whole)
    assert damaged != whole
    (tmp_path / "embedded.npz").write_bytes(damaged)
    monkeypatch.setattr(fashion_mnist, "files", lambda package: tmp_path)
    with pytest.raises(CorruptFileError, match="reinstall"):
        load("embedded")


def test_altered_contents_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fashion_mnist, "FINGERPRINT", "0" * 64)
    with pytest.raises(CorruptFileError, match="reinstall"):
        load("embedded")

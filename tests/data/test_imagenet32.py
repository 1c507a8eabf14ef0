from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from maskcon._utils.errors import CorruptFileError, DataError
from maskcon.data.builtin import imagenet32
from maskcon.data.builtin.imagenet32 import load_imagenet32, missing
from tests.data.miniature_imagenet32 import (
    NAMES,
    assert_is_the_miniature,
    assert_nothing_was_kept,
    write_batch,
    write_imagenet32,
)

pytestmark = pytest.mark.usefixtures("conversions")


@pytest.mark.parametrize(
    ("train", "test"),
    [(".", "."), ("Imagenet32_train", "Imagenet32_val"), ("imagenet32", "imagenet32/Imagenet32_val")],
)
def test_unpacked_files_are_found_and_read_in_order(tmp_path: Path, train: str, test: str) -> None:
    write_imagenet32(tmp_path / "root", train, test)
    assert missing(tmp_path / "root") == ()
    data = load_imagenet32(tmp_path / "root")
    assert_is_the_miniature(data)
    assert (data.name, data.family, data.train.images.shape) == ("imagenet32", "cifar", (60, 3, 32, 32))
    assert "official" in data.notes[0]


def test_test_ids_do_not_depend_on_the_training_part(tmp_path: Path) -> None:
    write_imagenet32(tmp_path / "root")
    data = load_imagenet32(tmp_path / "root")
    assert data.train.index.tolist() == list(range(60))
    assert data.test.index.tolist() == list(range(1_281_167, 1_281_167 + 6))


def test_missing_names_the_files_and_their_zips_in_an_empty_folder(tmp_path: Path) -> None:
    train, test = missing(tmp_path)
    assert train == "train_data_batch_1 to train_data_batch_10 of Imagenet32_train.zip"
    assert test == "val_data of Imagenet32_val.zip"
    with pytest.raises(
        DataError, match=r"missing: train_data_batch_1.*image-net\.org.*unzip them there"
    ) as error:
        load_imagenet32(tmp_path)
    assert "\n" not in str(error.value)
    assert str(tmp_path) in str(error.value)


def test_missing_names_the_files_that_a_partial_set_lacks(tmp_path: Path, conversions: Path) -> None:
    write_imagenet32(tmp_path / "root", "Imagenet32_train")
    for number in (3, 7):
        (tmp_path / "root" / "Imagenet32_train" / f"train_data_batch_{number}").unlink()
    (line,) = missing(tmp_path / "root")
    assert line.startswith("train_data_batch_3, train_data_batch_7 of Imagenet32_train.zip")
    with pytest.raises(DataError, match="train_data_batch_3, train_data_batch_7"):
        load_imagenet32(tmp_path / "root")
    assert_nothing_was_kept(conversions)


def test_download_answers_how_to_get_the_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"--download cannot fetch it.*login.*image-net\.org/download-images"):
        load_imagenet32(tmp_path, download=True)
    write_imagenet32(tmp_path / "root")
    assert_is_the_miniature(load_imagenet32(tmp_path / "root", download=True))


def md5_of(root: Path) -> dict[str, str]:
    return {name: hashlib.md5((root / name).read_bytes()).hexdigest() for name in NAMES}


def test_one_file_with_a_wrong_checksum_is_refused_by_name(
    tmp_path: Path, conversions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    write_imagenet32(root)
    monkeypatch.setattr(imagenet32, "KNOWN_MD5", {name: (md5,) for name, md5 in md5_of(root).items()})
    content = bytearray((root / "train_data_batch_6").read_bytes())
    content[5000] ^= 1  # a pixel
    (root / "train_data_batch_6").write_bytes(content)
    with pytest.raises(CorruptFileError, match=r"train_data_batch_6: its md5 is .*Nothing was used"):
        load_imagenet32(root)
    assert_nothing_was_kept(conversions)
    write_batch(root / "train_data_batch_6", 6)
    assert_is_the_miniature(load_imagenet32(root))


def test_files_of_no_known_release_are_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "root"
    write_imagenet32(root)
    monkeypatch.setattr(imagenet32, "OFFICIAL_TRAIN_COUNT", 60)
    monkeypatch.setattr(imagenet32, "OFFICIAL_TEST_COUNT", 6)
    assert "could not be verified" in load_imagenet32(root).notes[0]
    monkeypatch.setattr(imagenet32, "KNOWN_MD5", {name: (md5,) for name, md5 in md5_of(root).items()})
    assert load_imagenet32(root).notes == ()


def test_known_checksums_name_every_file_once() -> None:
    assert tuple(imagenet32.KNOWN_MD5) == NAMES
    values = [value for pair in imagenet32.KNOWN_MD5.values() for value in pair]
    assert all(len(bytes.fromhex(value)) == 16 for value in values)
    assert len(set(values)) == len(values)

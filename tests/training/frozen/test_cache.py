from __future__ import annotations

import json

import numpy as np
import pytest

from maskcon._utils.errors import MaskconError, UsageError
from maskcon.training.frozen.cache import CHUNK_IMAGES, DONE, FEATURES, FeatureFile, key_of

SHAPE = (2 * CHUNK_IMAGES + 5, 2, 3)
VALUES = np.random.default_rng(0).normal(size=SHAPE).astype(np.float16)


def opened(folder, shape=SHAPE, dtype="float16") -> FeatureFile:
    return FeatureFile(folder, shape, dtype, {"made": "here"})


def filled(folder) -> FeatureFile:
    file = opened(folder)
    for chunk in file.missing():
        rows = file.rows(chunk)
        file.write(chunk, VALUES[rows.start : rows.stop])
    return file


def test_what_was_written_is_read_back_in_any_order(tmp_path):
    file = opened(tmp_path)
    assert file.missing() == [0, 1, 2]
    for chunk in (2, 0, 1):
        rows = file.rows(chunk)
        file.write(chunk, VALUES[rows.start : rows.stop])
    assert opened(tmp_path).missing() == []
    assert np.array_equal(opened(tmp_path).array(), VALUES)
    assert np.array_equal(np.load(tmp_path / FEATURES), VALUES)  # the usual format, for everyone
    assert json.loads((tmp_path / "description.json").read_text()) == {"made": "here"}


def test_only_missing_and_damaged_chunks_are_made_again(tmp_path):
    file = filled(tmp_path)
    data = bytearray((tmp_path / FEATURES).read_bytes())
    data[-1] ^= 1  # in the last chunk
    (tmp_path / FEATURES).write_bytes(data)
    assert file.missing() == [2]
    first = (tmp_path / DONE).read_text().split("\n")[1]
    (tmp_path / DONE).write_text(first[:40])  # a kill in mid-line
    assert opened(tmp_path).missing() == [0, 1, 2]
    filled(tmp_path)
    assert opened(tmp_path).missing() == []
    assert np.array_equal(opened(tmp_path).array(), VALUES)


@pytest.mark.parametrize("seed", range(40))
def test_a_flipped_or_cut_byte_is_never_taken_for_a_feature(tmp_path, seed):
    filled(tmp_path)
    chance = np.random.default_rng(seed)
    path = tmp_path / (FEATURES if seed % 2 else DONE)
    data = bytearray(path.read_bytes())
    place = int(chance.integers(len(data)))
    if seed % 3:
        data[place] ^= 1 << int(chance.integers(8))
    else:
        del data[place:]
    path.write_bytes(data)
    again = filled(tmp_path)
    assert again.missing() == []
    assert np.array_equal(again.array(), VALUES)


def test_an_array_of_another_shape_or_type_is_begun_anew(tmp_path):
    filled(tmp_path)
    assert opened(tmp_path, dtype="float32").missing() == [0, 1, 2]
    assert opened(tmp_path, shape=(5, 2, 3)).missing() == [0]


def test_a_disk_that_is_full_says_so_before_the_work(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full, raising=False)
    with pytest.raises(MaskconError, match=r"No space left on device; free some space"):
        opened(tmp_path)
    monkeypatch.undo()
    assert not list(tmp_path.glob(".*"))  # nothing half made is left to take up room
    assert opened(tmp_path).missing() == [0, 1, 2]


def test_a_folder_that_cannot_be_written_is_the_users_to_change(tmp_path):
    (tmp_path / FEATURES).mkdir()  # in the way
    with pytest.raises(UsageError, match=r"cannot keep features in .*; set XDG_CACHE_HOME to a folder"):
        opened(tmp_path)


def test_every_part_of_a_description_changes_the_key():
    description = {"weights": "a", "views": ["weak", "strong"], "seed": 0, "pictures": "b"}
    keys = {key_of(description)}
    changes = {"weights": "c", "views": ["weak"], "seed": 1, "pictures": "d"}
    keys |= {key_of({**description, key: value}) for key, value in changes.items()}
    assert len(keys) == 5
    assert key_of(dict(reversed(description.items()))) in keys

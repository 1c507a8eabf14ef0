from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from maskcon._utils.errors import CorruptFileError, MaskconError, UsageError
from maskcon.retrieval import index_file
from maskcon.retrieval.index_file import read_index, write_index
from maskcon.retrieval.store import Entry, Header
from tests.retrieval.images_to_search import ENCODER, draw

NAMES = [
    "plain.jpg",
    "with space 'quote\".png",
    "ねこ/猫.jpg",
    "🐈 emoji.png",
    "caf\udce9.jpg",
    "line\nbreak.png",
]


def written(path: Path, count: int = 6) -> tuple[Path, list[Entry], np.ndarray]:
    entries = [Entry(NAMES[row], row * 1000, 2**62 + row, f"{row:064x}") for row in range(count)]
    vectors = np.random.default_rng(0).standard_normal((count, 5)).astype(np.float32)
    write_index(path, Header(ENCODER, "/photos", "/photos"), entries, 5, [vectors[:2], vectors[2:]])
    return path, entries, vectors


def test_what_was_written_comes_back_with_odd_names(tmp_path):
    path, entries, vectors = written(tmp_path / "index.maskcon")
    index = read_index(path)
    assert index.entries == entries
    assert index.header == Header(ENCODER, "/photos", "/photos")
    assert isinstance(index.vectors, np.memmap)
    assert (index.vectors == vectors).all()


def test_an_empty_index_is_one_too(tmp_path):
    path, *_ = written(tmp_path / "index.maskcon", count=0)
    assert read_index(path).vectors.shape == (0, 5)


def mutations(data: bytes, count: int):
    """Flipped bits, cuts, additions, swapped and zeroed pieces, at any place."""
    chance = random.Random(0)
    for number in range(count):
        place = chance.randrange(len(data))
        match number % 5:
            case 0:
                changed = bytearray(data)
                changed[place] ^= 1 << chance.randrange(8)
                yield bytes(changed)
            case 1:
                yield data[:place]
            case 2:
                yield data + chance.randbytes(1 + chance.randrange(50))
            case 3:
                length = 1 + chance.randrange(40)
                yield data[:place] + data[place + length :]
            case 4:
                other = data[:place] + chance.randbytes(16) + data[place + 16 :]
                yield other


def test_two_hundred_mutations_are_all_refused(tmp_path):
    path, *_ = written(tmp_path / "index.maskcon")
    data = path.read_bytes()
    tried = 0
    for changed in mutations(data, 250):
        if changed == data:
            continue
        tried += 1
        path.write_bytes(changed)
        with pytest.raises(CorruptFileError, match="delete it and run `maskcon index` again"):
            read_index(path)
    assert tried >= 200


def test_a_file_whose_checksum_is_right_but_whose_content_is_not_is_refused(tmp_path):
    path, *_ = written(tmp_path / "index.maskcon")
    body = path.read_bytes()[:-32]
    for wrong in (
        body.replace(b'"count": 6', b'"count": 7'),
        body.replace(b"encoder", b"encodex"),
        body[:-4],
        body.replace(b'"count": 6', b'"count":[]'),
    ):
        index_file.write_sealed(path, [wrong])
        with pytest.raises(CorruptFileError):
            read_index(path)
    index_file.write_sealed(path, [body.replace(b'"version": 1', b'"version": 9')])
    with pytest.raises(UsageError, match="version 9"):
        read_index(path)


def test_foreign_files_are_refused(tmp_path):
    foreign = [draw(tmp_path / "a.png", 0), tmp_path / "empty", tmp_path / "text"]
    foreign[1].write_bytes(b"")
    foreign[2].write_text("[1, 2]" * 100)
    np.save(tmp_path / "vectors.npy", np.zeros((3, 4)))
    for path in (*foreign, tmp_path / "vectors.npy"):
        with pytest.raises(CorruptFileError, match="was not written by maskcon"):
            read_index(path)
    with pytest.raises(UsageError, match="cannot read"):
        read_index(tmp_path)


def test_a_disk_that_is_full_leaves_the_old_file(tmp_path, monkeypatch):
    path, entries, _ = written(tmp_path / "index.maskcon")
    before = path.read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(index_file.os, "fsync", full)
    with pytest.raises(MaskconError, match=r"No space left on device; what was there is intact"):
        write_index(path, Header("f" * 64, "x"), entries[:1], 5, [np.zeros((1, 5), np.float32)])
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["index.maskcon"]


def test_vectors_and_entries_that_do_not_match_are_not_written(tmp_path):
    entries = [Entry("a", 1, 1, "0" * 64)]
    for blocks in ([], [np.zeros((2, 5), np.float32)], [np.zeros((1, 4), np.float32)]):
        with pytest.raises(UsageError):
            write_index(tmp_path / "index.maskcon", Header(ENCODER, "x"), entries, 5, blocks)
    assert list(tmp_path.iterdir()) == []

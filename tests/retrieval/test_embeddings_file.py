"""The embeddings file: what is written comes back, and nothing else is taken for it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maskcon._utils.errors import CorruptFileError, MaskconError, UsageError
from maskcon.retrieval import embeddings_file
from maskcon.retrieval.embeddings_file import SEAL, UNSEALED, read_embeddings, write_embeddings
from maskcon.retrieval.store import Entry, Header

HEADER = Header("ab" * 32, "photos", "photos", {"backbone": "resnet6"})
PATHS = ["a 'quoted' name.jpg", "кот/猫.png", "emoji/🐈.webp", "new\nline.gif", "plain.jpg"]
COARSE = [None, "кот", "emoji", None, None]
ENTRIES = [Entry(PATHS[n], n, 2**62 + n, f"{n:064x}", COARSE[n]) for n in range(5)]
MUTATIONS = 200


def write(path: Path) -> np.ndarray:
    vectors = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)
    write_embeddings(path, HEADER, ENTRIES, list(vectors))
    return vectors


def test_rows_and_header_come_back_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embeddings_file, "GROUP_ROWS", 3)
    vectors = write(tmp_path / "e.parquet")
    assert pq.read_metadata(tmp_path / "e.parquet").num_row_groups == 2
    found = read_embeddings(tmp_path / "e.parquet")
    assert found.entries == ENTRIES
    np.testing.assert_array_equal(found.vectors, vectors)
    assert found.vectors.dtype == np.float32
    assert (found.header, dict(found.header.details)) == (HEADER, HEADER.details)
    assert found.file(1) == Path("photos") / PATHS[1]
    assert [path.name for path in tmp_path.iterdir()] == ["e.parquet"]


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_any_parquet_reader_can_read_it(tmp_path: Path) -> None:
    vectors = write(tmp_path / "e.parquet")
    table = pq.read_table(tmp_path / "e.parquet")
    assert table.column("path").to_pylist() == PATHS
    np.testing.assert_array_equal(np.array(table.column("vector").to_pylist(), np.float32), vectors)


@pytest.mark.skipif(os.name == "nt", reason="names are text there, without colons")
def test_any_name_of_a_folder_can_be_written_to(tmp_path: Path) -> None:
    """Not taken for the address of a file system elsewhere, nor refused because its bytes are no text."""
    for name in ("s3:bucket", os.fsdecode(b"caf\xe9"), "with space"):
        folder = tmp_path / name
        folder.mkdir()
        vectors = write(folder / "e.parquet")
        np.testing.assert_array_equal(read_embeddings(folder / "e.parquet").vectors, vectors)


def test_a_place_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(MaskconError, match=r"could not write .*e\.parquet: No such file or directory"):
        write(tmp_path / "gone" / "e.parquet")


@pytest.mark.parametrize("seed", range(4))
def test_no_mutation_is_silent(tmp_path: Path, seed: int) -> None:
    """Flips, truncations, insertions and swaps at random places: each is refused, by a line that names the file."""
    path = tmp_path / "e.parquet"
    write(path)
    whole = path.read_bytes()
    generator = np.random.default_rng(seed)
    for number in range(MUTATIONS // 4):
        at = int(generator.integers(0, len(whole)))
        other = bytes([whole[at] ^ (1 << int(generator.integers(0, 8)))])
        mutated = (
            whole[:at] + other + whole[at + 1 :],
            whole[:at],
            whole[:at] + other + whole[at:],
            whole[:at] + whole[at + 1 :],
        )[number % 4]
        path.write_bytes(mutated)
        with pytest.raises(CorruptFileError, match=r"e\.parquet"):
            read_embeddings(path)
    path.write_bytes(whole)
    assert len(read_embeddings(path)) == 5


def test_every_byte_of_the_footer_counts(tmp_path: Path) -> None:
    """Also those that a Parquet reader does not look at, such as the name of the program that wrote the file."""
    path = tmp_path / "e.parquet"
    write(path)
    whole = path.read_bytes()
    length = int.from_bytes(whole[-8:-4], "little")
    for at in range(len(whole) - 8 - length, len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(CorruptFileError):
            read_embeddings(path)


def test_a_file_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "foreign.parquet"
    pq.write_table(pa.table({"path": ["a"], "vector": [[1.0]]}), path)
    with pytest.raises(CorruptFileError, match="was not written by `maskcon embed`"):
        read_embeddings(path)
    write(tmp_path / "e.parquet")
    pq.write_table(pq.read_table(tmp_path / "e.parquet"), path)
    with pytest.raises(CorruptFileError, match="saved again by another program"):
        read_embeddings(path)
    for content in (b"", b"PAR1", b"not parquet at all", b"\xff\xff\xff\x7fPAR1"):
        path.write_bytes(content)
        with pytest.raises(CorruptFileError, match="not a Parquet file"):
            read_embeddings(path)


def test_an_absent_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no embeddings at"):
        read_embeddings(tmp_path / "none.parquet")
    with pytest.raises(UsageError, match="cannot read"):
        read_embeddings(tmp_path)


def test_another_version_is_not_reported_as_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(embeddings_file, "FORMAT", 99)
        write(tmp_path / "e.parquet")
    with pytest.raises(CorruptFileError, match="another version of maskcon"):
        read_embeddings(tmp_path / "e.parquet")


def test_an_unsealed_file_is_refused(tmp_path: Path) -> None:
    """What a writer leaves that never came to its end, under whatever name."""
    path = tmp_path / "e.parquet"
    write(path)
    whole = path.read_bytes()
    at = whole.index(SEAL) + len(SEAL)
    path.write_bytes(whole[:at] + UNSEALED + whole[at + 64 :])
    with pytest.raises(CorruptFileError, match="does not match its checksum"):
        read_embeddings(path)


def test_a_writer_left_early_leaves_nothing_and_the_old_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "e.parquet"
    write(path)
    before = path.read_bytes()

    with pytest.raises(AttributeError):
        write_embeddings(path, HEADER, [*ENTRIES[:4], None], list(np.zeros((5, 6), np.float32)))
    assert [found.name for found in tmp_path.iterdir()] == ["e.parquet"]
    assert path.read_bytes() == before


def test_a_full_disk_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "e.parquet"
    write(path)
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("maskcon._utils.files.os.fsync", full)
    with pytest.raises(
        MaskconError, match=r"could not write .*e\.parquet: No space left on device; what was there is intact"
    ):
        write(path)
    assert path.read_bytes() == before
    assert [found.name for found in tmp_path.iterdir()] == ["e.parquet"]

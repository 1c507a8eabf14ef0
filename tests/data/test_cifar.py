from __future__ import annotations

import hashlib
import io
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maskcon._utils.errors import CorruptFileError, DataError, UsageError
from maskcon.data import Dataset, load
from maskcon.data.archive import extract
from maskcon.data.builtin import cifar, release
from maskcon.data.builtin.classes import read_grouping
from tests.data.miniatures import python2_pickle, random_pixels, write_cifar10, write_cifar100


def groups(data: Dataset) -> list[set[str]]:
    names = data.fine_names or ()
    found: list[set[str]] = [set() for _ in data.coarse_names]
    for fine, coarse in enumerate(data.coarse_of_fine or ()):
        found[coarse].add(names[fine])
    return found


def write_archive(folder: Path, target: Path) -> None:
    with tarfile.open(target, "w:gz") as tar:
        tar.add(folder, arcname=folder.name)


def expect_archive(monkeypatch: pytest.MonkeyPatch, archive: Path) -> None:
    """Let this miniature be the official archive of CIFAR-10."""
    md5 = hashlib.md5(archive.read_bytes()).hexdigest()
    monkeypatch.setattr(cifar, "CIFAR10", replace(cifar.CIFAR10, md5=md5))


def test_cifar10_pixels_and_labels_come_in_file_order(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "cifar-10-batches-py")
    data = load("cifar10", root=tmp_path)
    assert data.train.images.shape == (100, 3, 32, 32)
    assert np.array_equal(data.train.images[20:40].reshape(20, -1), random_pixels(20, seed=1))
    assert np.array_equal(data.test.images.reshape(20, -1), random_pixels(20, seed=5))
    assert data.train.fine is not None
    assert data.train.fine[:12].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]
    assert groups(data) == [
        {"bird", "cat", "deer", "dog", "frog", "horse"},
        {"airplane", "automobile", "ship", "truck"},
    ]
    assert data.test.index[0] == 50_000
    assert "official" in data.notes[0]


@pytest.mark.parametrize(
    ("name", "variant", "first", "second"),
    [
        ("cifartoy-good", "paper", "airplane automobile ship truck", "bird cat dog horse"),
        ("cifartoy-good", "reference", "airplane automobile ship truck", "bird cat dog horse"),
        ("cifartoy-bad", "paper", "airplane automobile bird cat", "horse dog ship truck"),
        ("cifartoy-bad", "reference", "airplane automobile dog cat", "ship truck bird horse"),
    ],
)
def test_toy_splits_group_as_paper_or_code_say(
    tmp_path: Path, name: str, variant: Any, first: str, second: str
) -> None:
    write_cifar10(tmp_path / "cifar-10-batches-py")
    data = load(name, root=tmp_path, variant=variant)
    assert groups(data) == [set(first.split()), set(second.split())]
    assert len(data.train) == 80
    assert len(data.test) == 16
    assert set(data.fine_names or ()).isdisjoint({"deer", "frog"})
    assert any("authors' code" in note for note in data.notes) == (
        name == "cifartoy-bad" and variant == "reference"
    )


def test_toy_images_keep_their_own_label_and_id(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "cifar-10-batches-py")
    whole, toy = load("cifar10", root=tmp_path), load("cifartoy-bad", root=tmp_path)
    assert whole.train.fine is not None
    assert toy.train.fine is not None
    for row, sample in enumerate(toy.train.index.tolist()):
        assert np.array_equal(toy.train.images[row], whole.train.images[sample])
        name = (toy.fine_names or ())[toy.train.fine[row]]
        assert name == (whole.fine_names or ())[whole.train.fine[sample]]


def test_unknown_variant_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'paper'"):
        load("cifartoy-bad", root=tmp_path, variant="papr")  # type: ignore[arg-type]


def test_cifar100_has_its_own_twenty_groups(tmp_path: Path) -> None:
    write_cifar100(tmp_path / "cifar-100-python")
    data = load("cifar100", root=tmp_path)
    assert len(data.coarse_names) == 20
    assert data.coarse_names == read_grouping("cifar100").coarse_names
    assert [len(group) for group in groups(data)] == [5] * 20
    assert data.train.fine is not None
    assert np.array_equal(data.train.coarse, np.array(read_grouping("cifar100").coarse_of)[data.train.fine])


def test_cifar100_names_are_numbered_as_in_the_official_files() -> None:
    grouping = read_grouping("cifar100")
    assert list(grouping.fine_names) == sorted(grouping.fine_names)
    assert list(grouping.coarse_names) == sorted(grouping.coarse_names)
    assert len(set(grouping.fine_names)) == 100
    assert grouping.sizes == (5,) * 20
    assert grouping.coarse_of[:10] == (4, 1, 14, 8, 0, 6, 7, 7, 18, 3)
    people = grouping.coarse_names.index("people")
    names = [
        fine for fine, coarse in zip(grouping.fine_names, grouping.coarse_of, strict=True) if coarse == people
    ]
    assert names == ["baby", "boy", "girl", "man", "woman"]


def test_archive_in_the_root_is_unpacked_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cifar10(tmp_path / "made" / "cifar-10-batches-py")
    root = tmp_path / "root"
    root.mkdir()
    write_archive(tmp_path / "made" / "cifar-10-batches-py", root / "cifar-10-python.tar.gz")
    expect_archive(monkeypatch, root / "cifar-10-python.tar.gz")
    first = load("cifar10", root=root)
    (root / "cifar-10-python.tar.gz").unlink()
    assert load("cifar10", root=root).fingerprint() == first.fingerprint()


def test_archive_with_a_wrong_checksum_is_refused_by_name(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "made" / "cifar-10-batches-py")
    root = tmp_path / "root"
    root.mkdir()
    write_archive(tmp_path / "made" / "cifar-10-batches-py", root / "cifar-10-python.tar.gz")
    with pytest.raises(CorruptFileError, match=r"cifar-10-python\.tar\.gz is not the file of .* its md5 is"):
        load("cifar10", root=root)
    assert [path.name for path in root.iterdir()] == ["cifar-10-python.tar.gz"]


@pytest.mark.parametrize("with_archive", [False, True])
def test_folder_that_lacks_a_file_is_named_before_anything_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_archive: bool
) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    write_cifar10(folder)
    if with_archive:
        write_archive(folder, tmp_path / "cifar-10-python.tar.gz")
    (folder / "data_batch_3").unlink()
    monkeypatch.setattr(release, "fetch", lambda *_, **__: pytest.fail("fetched for nothing"))
    assert cifar.CIFAR10.missing(tmp_path) == (f"data_batch_3 in {folder}",)
    with pytest.raises(DataError, match=r"is not complete: data_batch_3 not found.*delete the folder"):
        load("cifar10", root=tmp_path, download=True)


def test_loose_files_that_lack_one_say_which(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write_cifar10(root)
    (root / "test_batch").unlink()
    assert cifar.CIFAR10.missing(root) == (f"test_batch in {root}",)
    with pytest.raises(DataError, match=r"not found whole \(missing: test_batch\)"):
        load("cifar10", root=root)


def test_hostile_archive_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "root"
    root.mkdir()
    with tarfile.open(root / "cifar-10-python.tar.gz", "w:gz") as tar:
        member = tarfile.TarInfo("../escaped")
        member.size = 3
        tar.addfile(member, io.BytesIO(b"bad"))
    expect_archive(monkeypatch, root / "cifar-10-python.tar.gz")
    with pytest.raises(CorruptFileError, match="outside"):
        load("cifar10", root=root)
    assert [path.name for path in tmp_path.rglob("*")] == ["root", "cifar-10-python.tar.gz"]


def test_absent_files_say_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"--download.*cifar-100-python\.tar\.gz"):
        load("cifar100", root=tmp_path)


def test_download_fetches_the_archive_from_the_next_address_if_one_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cifar100(tmp_path / "made" / "cifar-100-python")
    archive = tmp_path / "made.tar.gz"
    write_archive(tmp_path / "made" / "cifar-100-python", archive)
    md5 = hashlib.md5(archive.read_bytes()).hexdigest()
    asked = []

    def fetch(url: str, target: Path, *, algorithm: str, digest: str, progress: object) -> Path:
        asked.append(url)
        if len(asked) == 1:
            raise DataError("cannot reach the first")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(archive.read_bytes())
        return target

    monkeypatch.setattr(release, "fetch", fetch)
    monkeypatch.setattr(cifar, "CIFAR100", replace(cifar.CIFAR100, md5=md5))
    data = load("cifar100", root=tmp_path / "root", download=True)
    assert len(data.train) == 200
    assert [url.split("/")[2] for url in asked] == ["cave.cs.toronto.edu", "www.cs.toronto.edu"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": random_pixels(20, seed=0)[:, :3000]}, "3072"),
        ({"data": "text"}, "3072"),
        ({"labels": [0] * 19}, "20 whole numbers"),
        ({"labels": ["0"] * 20}, "20 whole numbers"),
        ({"labels": [10] * 20}, r"0\.\.9"),
        ({"labels": [-1] * 20}, r"0\.\.9"),
    ],
)
def test_batches_with_wrong_contents_are_refused(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    write_cifar10(folder)
    entries: dict[str, Any] = {"data": random_pixels(20, seed=0), "labels": [0] * 20} | change
    (folder / "data_batch_3").write_bytes(python2_pickle(entries))
    with pytest.raises(CorruptFileError, match=f"data_batch_3.*{message}"):
        load("cifar10", root=tmp_path)


def test_coarse_labels_that_are_not_those_of_cifar100_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-100-python"
    write_cifar100(folder)
    entries: dict[str, Any] = {
        "data": random_pixels(2, seed=0),
        "fine_labels": [0, 1],
        "coarse_labels": [4, 2],
    }
    (folder / "test").write_bytes(python2_pickle(entries))
    with pytest.raises(CorruptFileError, match="not those of CIFAR-100"):
        load("cifar100", root=tmp_path)


def test_folder_that_another_process_unpacks_meanwhile_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cifar10(tmp_path / "made" / "cifar-10-batches-py")
    root = tmp_path / "root"
    root.mkdir()
    write_archive(tmp_path / "made" / "cifar-10-batches-py", root / "cifar-10-python.tar.gz")

    expect_archive(monkeypatch, root / "cifar-10-python.tar.gz")

    def late(archive: Path, destination: Path, **options: Any) -> Path:
        extract(archive, destination, **options)  # the other process
        return extract(archive, destination, **options)

    monkeypatch.setattr(release, "extract", late)
    assert len(load("cifar10", root=root).train) == 100


def test_images_of_both_parts_can_be_written_to(tmp_path: Path) -> None:
    """Else torch warns the user when it wraps them."""
    write_cifar10(tmp_path / "cifar-10-batches-py")
    data = load("cifar10", root=tmp_path)
    assert data.train.images.flags.writeable
    assert data.test.images.flags.writeable

from __future__ import annotations

import errno
import hashlib
import os
import pickle
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import tracemalloc
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maskcon.errors import CorruptFileError, DataError
from maskcon.sources import batch_files, converted, imagenet32
from maskcon.sources.contract import Dataset
from maskcon.sources.imagenet32 import CLASSES, COARSE_NAMES, coarse_of, load_imagenet32, missing, verify
from tests.sources.miniatures import random_pixels

PUBLISHED_COUNTS = [61, 123, 59, 95, 60, 130, 70, 53, 105, 71, 93, 80]
NAMES = (*imagenet32.TRAIN_FILES, imagenet32.TEST_FILE)
REPOSITORY = Path(__file__).parents[2]
WORDNET = Path("/usr/share/wordnet/data.noun")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where conversions go in these tests."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "maskcon" / "converted"


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


def write_zips(root: Path, inside: str = "") -> None:
    write_imagenet32(root / "made")
    for archive, names in (("Imagenet32_train.zip", NAMES[:-1]), ("Imagenet32_val.zip", NAMES[-1:])):
        with zipfile.ZipFile(root / archive, "w", zipfile.ZIP_DEFLATED) as out:
            for name in names:
                out.write(root / "made" / name, inside + name)
    shutil.rmtree(root / "made")


def assert_is_the_miniature(data: Dataset, count: int = 6) -> None:
    order = {entry.file_label: place for place, entry in enumerate(CLASSES)}
    expected = [order[label] for number in range(1, 11) for label in batch_labels(number, count)]
    assert data.train.fine is not None
    assert data.train.fine.tolist() == expected
    assert data.train.coarse.tolist() == [CLASSES[fine].coarse for fine in expected]
    pixels = np.concatenate([random_pixels(count, seed=number) for number in range(1, 11)])
    assert np.array_equal(data.train.images, pixels.reshape(-1, 3, 32, 32))
    assert np.array_equal(data.test.images, random_pixels(count, seed=11).reshape(-1, 3, 32, 32))


def assert_nothing_was_kept(cache: Path) -> None:
    assert not cache.exists() or list(cache.iterdir()) == []


# the table


def test_coarse_classes_have_the_published_counts() -> None:
    counts = Counter(coarse_of())
    assert [counts[number] for number in range(len(COARSE_NAMES))] == PUBLISHED_COUNTS


def test_file_labels_are_a_permutation_and_wnids_are_sorted() -> None:
    assert sorted(entry.file_label for entry in CLASSES) == list(range(1, 1001))
    wnids = [entry.wnid for entry in CLASSES]
    assert wnids == sorted(set(wnids))
    assert len({entry.name for entry in CLASSES}) == 1000


@pytest.mark.parametrize(
    ("file_label", "place", "wnid", "name"),
    [
        (1, 278, "n02119789", "kit fox"),
        (2, 212, "n02100735", "English setter"),
        (449, 0, "n01440764", "tench"),
        (429, 134, "n02012849", "crane (wading bird)"),
        (545, 517, "n03126707", "crane (lifting device)"),
        (889, 999, "n15075141", "toilet tissue"),
        (1000, 543, "n03255030", "dumbbell"),
    ],
)
def test_labels_of_the_files_follow_their_own_order(
    file_label: int, place: int, wnid: str, name: str
) -> None:
    entry = CLASSES[place]
    assert (entry.wnid, entry.file_label, entry.name) == (wnid, file_label, name)


@pytest.mark.parametrize(
    ("wnid", "coarse"),
    [
        ("n02939185", "instrument"),  # caldron
        ("n03063689", "instrument"),  # coffeepot
        ("n04398044", "instrument"),  # teapot
        ("n04266014", "instrument"),  # space shuttle
        ("n03938244", "clothing"),  # pillow
        ("n02704792", "vehicle"),  # the amphibian with wheels
        ("n01641577", "reptile/aquatic vertebrate"),  # bullfrog
        ("n03207941", "artifact"),  # dishwasher
        ("n04179913", "device"),  # sewing machine
        ("n02123045", "domestic animal"),  # tabby
        ("n02129604", "mammal"),  # tiger
        ("n07747607", "others"),  # orange
    ],
)
def test_exceptions_and_edges_of_the_rule(wnid: str, coarse: str) -> None:
    assert [COARSE_NAMES[entry.coarse] for entry in CLASSES if entry.wnid == wnid] == [coarse]


@pytest.mark.skipif(not WORDNET.is_file(), reason="needs Debian's wordnet-base")
def test_the_rule_gives_the_table_in_the_package() -> None:
    command = [sys.executable, "scripts/build_imagenet_groups.py", "--noun", str(WORDNET), "--check"]
    done = subprocess.run(command, cwd=REPOSITORY, env=with_package(), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "device 130" in done.stdout


def with_package() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(REPOSITORY / "src")}


# loading


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


@pytest.mark.parametrize("inside", ["", "Imagenet32_train/"])
def test_zips_are_read_and_left_alone(tmp_path: Path, inside: str, cache: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    write_zips(root, inside)
    assert missing(root) == ()
    assert_is_the_miniature(load_imagenet32(root))
    assert sorted(path.name for path in root.iterdir()) == ["Imagenet32_train.zip", "Imagenet32_val.zip"]
    (folder,) = cache.iterdir()
    assert sorted(path.name for path in folder.iterdir()) == [
        "manifest.json",
        "test.images",
        "test.labels",
        "train.images",
        "train.labels",
    ]


def test_test_ids_do_not_depend_on_the_training_part(tmp_path: Path) -> None:
    write_imagenet32(tmp_path / "root")
    data = load_imagenet32(tmp_path / "root")
    assert data.train.index.tolist() == list(range(60))
    assert data.test.index.tolist() == list(range(1_281_167, 1_281_167 + 6))


def test_later_loads_map_the_conversion_and_read_no_pickle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_imagenet32(tmp_path / "root")
    first = load_imagenet32(tmp_path / "root").fingerprint()

    def refuse(path: Path) -> None:
        raise AssertionError(f"{path} was read again")

    monkeypatch.setattr(batch_files, "load_pickle", refuse)
    again = load_imagenet32(tmp_path / "root")
    assert again.fingerprint() == first
    assert isinstance(again.train.images, np.memmap)
    assert not again.train.images.flags.writeable


def test_progress_counts_batch_files(tmp_path: Path) -> None:
    write_imagenet32(tmp_path / "root")
    seen: list[tuple[int, int | None]] = []
    load_imagenet32(tmp_path / "root", progress=lambda done, total: seen.append((done, total)))
    assert seen == [(done, 11) for done in range(1, 12)]


def test_changed_files_are_converted_anew_and_the_old_conversion_goes(tmp_path: Path, cache: Path) -> None:
    root = tmp_path / "root"
    write_imagenet32(root)
    load_imagenet32(root)
    (before,) = cache.iterdir()
    write_batch(root / "train_data_batch_2", 2, data=random_pixels(6, seed=99))
    os.utime(root / "train_data_batch_2", ns=(1, 1))  # whatever the clock's resolution
    data = load_imagenet32(root)
    assert np.array_equal(data.train.images[6:12].reshape(6, -1), random_pixels(6, seed=99))
    (after,) = cache.iterdir()
    assert after != before


def test_conversions_of_two_roots_live_side_by_side(tmp_path: Path, cache: Path) -> None:
    for name in ("one", "two"):
        write_imagenet32(tmp_path / name)
        load_imagenet32(tmp_path / name)
    assert len(list(cache.iterdir())) == 2


def test_conversion_holds_one_batch_in_memory(tmp_path: Path) -> None:
    count = 1500
    write_imagenet32(tmp_path / "root", count=count)
    load_imagenet32(tmp_path / "root")  # so that what is imported or cached once does not count
    shutil.rmtree(tmp_path / "cache")
    tracemalloc.start()
    try:
        load_imagenet32(tmp_path / "root")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    batch = count * 3072
    assert batch < peak < 1.6 * batch  # all ten would be 10


def test_two_loads_at_once_convert_once(tmp_path: Path, cache: Path) -> None:
    write_imagenet32(tmp_path / "root")
    converted_files: list[int] = []
    results: list[str] = []

    def work() -> None:
        data = load_imagenet32(tmp_path / "root", progress=lambda done, _: converted_files.append(done))
        results.append(data.fingerprint())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert len(set(results)) == 1
    assert converted_files == list(range(1, 12))
    assert len(list(cache.iterdir())) == 1


# what is missing


def test_missing_names_both_zips_in_an_empty_folder(tmp_path: Path) -> None:
    train, test = missing(tmp_path)
    assert train == "Imagenet32_train.zip (or its unpacked train_data_batch_1 to train_data_batch_10)"
    assert test == "Imagenet32_val.zip (or its unpacked val_data)"
    with pytest.raises(
        DataError, match=r"missing: Imagenet32_train.*image-net\.org.*put them there"
    ) as error:
        load_imagenet32(tmp_path)
    assert "\n" not in str(error.value)
    assert str(tmp_path) in str(error.value)


def test_missing_names_the_files_that_a_partial_set_lacks(tmp_path: Path, cache: Path) -> None:
    write_imagenet32(tmp_path / "root", "Imagenet32_train")
    for number in (3, 7):
        (tmp_path / "root" / "Imagenet32_train" / f"train_data_batch_{number}").unlink()
    (line,) = missing(tmp_path / "root")
    assert line.startswith("train_data_batch_3, train_data_batch_7 of Imagenet32_train.zip")
    with pytest.raises(DataError, match="train_data_batch_3, train_data_batch_7"):
        load_imagenet32(tmp_path / "root")
    assert_nothing_was_kept(cache)


def test_download_answers_how_to_get_the_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"--download cannot fetch it.*login.*image-net\.org/download-images"):
        load_imagenet32(tmp_path, download=True)
    write_imagenet32(tmp_path / "root")
    assert_is_the_miniature(load_imagenet32(tmp_path / "root", download=True))


# damaged and hostile files


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
        ({"data": random_pixels(0, seed=0), "labels": []}, r"1\.\.1000"),
        ({"mean": np.arange(3, dtype=np.int64)}, "type 'i8'"),
        ({"mean": print}, "print"),
    ],
)
def test_batches_with_wrong_contents_are_refused_by_name(
    tmp_path: Path, cache: Path, change: dict[str, Any], message: str
) -> None:
    write_imagenet32(tmp_path / "root")
    write_batch(tmp_path / "root" / "train_data_batch_4", 4, **change)
    with pytest.raises(CorruptFileError, match=f"train_data_batch_4.*{message}"):
        load_imagenet32(tmp_path / "root")
    assert_nothing_was_kept(cache)


@pytest.mark.parametrize("name", ["train_data_batch_10", "val_data"])
def test_truncated_batch_is_refused_and_nothing_is_kept(tmp_path: Path, cache: Path, name: str) -> None:
    write_imagenet32(tmp_path / "root")
    path = tmp_path / "root" / name
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(CorruptFileError, match=f"{name}: damaged pickle"):
        load_imagenet32(tmp_path / "root")
    assert_nothing_was_kept(cache)


class RunsOnLoading:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.marker),)


def test_hostile_pickle_in_a_zip_is_refused_and_the_zip_named(tmp_path: Path, cache: Path) -> None:
    root, marker = tmp_path / "root", tmp_path / "marker"
    root.mkdir()
    write_zips(root)
    hostile = batch_bytes({"data": random_pixels(1, seed=0), "labels": [1], "more": RunsOnLoading(marker)})
    with zipfile.ZipFile(root / "Imagenet32_val.zip", "w") as out:
        out.writestr("val_data", hostile)
    with pytest.raises(CorruptFileError, match=r"Imagenet32_val\.zip: val_data: it names 'posix\.mkdir'"):
        load_imagenet32(root)
    assert not marker.exists()
    pickle.loads(hostile)  # it would have run
    assert marker.exists()
    assert_nothing_was_kept(cache)


def test_zip_without_a_batch_or_cut_short_is_refused(tmp_path: Path, cache: Path) -> None:
    write_zips(tmp_path)
    archive = tmp_path / "Imagenet32_train.zip"
    whole = archive.read_bytes()
    archive.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CorruptFileError, match=r"Imagenet32_train\.zip"):
        load_imagenet32(tmp_path)
    with zipfile.ZipFile(archive, "w") as out:
        out.writestr("train_data_batch_1", b"")
    with pytest.raises(CorruptFileError, match=r"Imagenet32_train\.zip: it holds no train_data_batch_2"):
        load_imagenet32(tmp_path)
    assert_nothing_was_kept(cache)


def test_zip_that_points_outside_is_refused(tmp_path: Path, cache: Path) -> None:
    write_zips(tmp_path)
    with zipfile.ZipFile(tmp_path / "Imagenet32_val.zip", "w") as out:
        out.writestr("../../val_data", b"")
    with pytest.raises(CorruptFileError, match="outside"):
        load_imagenet32(tmp_path)
    assert_nothing_was_kept(cache)


# checksums


def md5_of(root: Path) -> dict[str, str]:
    return {name: hashlib.md5((root / name).read_bytes()).hexdigest() for name in NAMES}


def test_one_file_with_a_wrong_checksum_is_refused_by_name(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    write_imagenet32(root)
    monkeypatch.setattr(imagenet32, "KNOWN_MD5", (*imagenet32.KNOWN_MD5, md5_of(root)))
    content = bytearray((root / "train_data_batch_6").read_bytes())
    content[5000] ^= 1  # a pixel
    (root / "train_data_batch_6").write_bytes(content)
    with pytest.raises(CorruptFileError, match=r"train_data_batch_6: its md5 is .*Nothing was used"):
        load_imagenet32(root)
    assert_nothing_was_kept(cache)
    write_batch(root / "train_data_batch_6", 6)
    assert_is_the_miniature(load_imagenet32(root))


def test_files_of_no_known_release_are_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "root"
    write_imagenet32(root)
    monkeypatch.setattr(imagenet32, "OFFICIAL_TRAIN_COUNT", 60)
    monkeypatch.setattr(imagenet32, "OFFICIAL_TEST_COUNT", 6)
    assert "could not be verified" in load_imagenet32(root).notes[0]
    monkeypatch.setattr(imagenet32, "KNOWN_MD5", (md5_of(root),))
    assert load_imagenet32(root).notes == ()


def test_known_checksums_name_every_file_once() -> None:
    for release in imagenet32.KNOWN_MD5:
        assert tuple(release) == NAMES
        assert all(len(bytes.fromhex(value)) == 16 for value in release.values())
    values = [value for release in imagenet32.KNOWN_MD5 for value in release.values()]
    assert len(set(values)) == len(values)


# interrupted and damaged conversions


def test_killed_conversion_is_cleared_away_by_the_next(tmp_path: Path, cache: Path) -> None:
    write_imagenet32(tmp_path / "root")
    code = f"""
        import os, signal
        from pathlib import Path
        from maskcon.sources.imagenet32 import load_imagenet32
        def progress(done, total):
            if done == 5:
                os.kill(os.getpid(), signal.SIGKILL)
        load_imagenet32(Path({str(tmp_path / "root")!r}), progress=progress)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=with_package())
    assert done.returncode == -signal.SIGKILL
    (left,) = cache.iterdir()
    assert "-partial-" in left.name
    assert_is_the_miniature(load_imagenet32(tmp_path / "root"))
    (folder,) = cache.iterdir()
    assert "-partial-" not in folder.name


@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError(errno.ENOSPC, "No space left on device")])
def test_interrupt_or_full_disk_leaves_nothing(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, stop: Any
) -> None:
    write_imagenet32(tmp_path / "root")
    written = []

    def write(path: Path, data: bytes) -> None:
        written.append(path.name)
        raise stop

    monkeypatch.setattr(batch_files, "write_synced", write)
    expected = DataError if isinstance(stop, OSError) else KeyboardInterrupt
    with pytest.raises(expected) as error:
        load_imagenet32(tmp_path / "root")
    assert written == ["train.labels"]
    assert expected is KeyboardInterrupt or "No space left" in str(error.value)
    assert_nothing_was_kept(cache)


def test_too_little_room_is_said_before_anything_is_written(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_imagenet32(tmp_path / "root")
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(converted.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(DataError, match=r"converting needs about .* GB .*XDG_CACHE_HOME"):
        load_imagenet32(tmp_path / "root")
    assert_nothing_was_kept(cache)


@pytest.mark.parametrize("damage", ["train.images", "test.images", "train.labels", "manifest.json"])
def test_damaged_conversion_is_made_anew(tmp_path: Path, cache: Path, damage: str) -> None:
    write_imagenet32(tmp_path / "root")
    load_imagenet32(tmp_path / "root")
    (folder,) = cache.iterdir()
    content = bytearray((folder / damage).read_bytes())
    content[3] ^= 1
    (folder / damage).write_bytes(content[: len(content) if damage == "train.labels" else -1])
    assert_is_the_miniature(load_imagenet32(tmp_path / "root"))


def test_verify_finds_a_changed_pixel(tmp_path: Path, cache: Path) -> None:
    write_imagenet32(tmp_path / "root")
    verify(tmp_path / "root")
    (folder,) = cache.iterdir()
    content = bytearray((folder / "train.images").read_bytes())
    content[777] ^= 1
    (folder / "train.images").write_bytes(content)
    with pytest.raises(CorruptFileError, match=r"train\.images does not match its checksum"):
        verify(tmp_path / "root")


def test_files_that_change_during_the_conversion_are_not_kept(tmp_path: Path, cache: Path) -> None:
    write_imagenet32(tmp_path / "root")

    def progress(done: int, _: int | None) -> None:
        if done == 8:
            os.utime(tmp_path / "root" / "train_data_batch_1", ns=(1, 1))

    with pytest.raises(DataError, match="changed while"):
        load_imagenet32(tmp_path / "root", progress=progress)
    assert_nothing_was_kept(cache)

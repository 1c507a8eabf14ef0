from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from maskcon._utils.errors import DataError
from maskcon._utils.files import one_at_a_time
from maskcon.data import cache as cache_module
from maskcon.data import packing
from maskcon.data.folder_layout import Found, Layout
from maskcon.data.packing import ImagePlan, find_pack, make_pack
from maskcon.data.photos import plan_photos, read_path
from tests.data.class_folders import all_paths, load_photos, write_classes
from tests.data.miniatures import write_picture


def test_large_folder_is_packed_into_the_cache_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_classes(tmp_path / "set", "a", "b")
    (root / "a" / "text.jpg").write_text("not an image")
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(root / "a" / "cut.png")
    (root / "a" / "cut.png").write_bytes((root / "a" / "cut.png").read_bytes()[:5000])
    cache = tmp_path / "cache"
    in_memory = load_photos(root, cache=cache)
    assert not cache.exists()
    monkeypatch.setattr(packing, "PACK_ABOVE_BYTES", 1000)
    packed = load_photos(root, cache=cache)
    assert len(list(cache.iterdir())) == 1
    assert packed.fingerprint() == in_memory.fingerprint()
    assert packed.notes == in_memory.notes

    def no_decoding(*_: object) -> None:
        raise AssertionError("decoded again")

    with monkeypatch.context() as context:
        context.setattr(packing, "decode", no_decoding)
        assert load_photos(root, cache=cache).fingerprint() == in_memory.fingerprint()
    write_picture(root / "a" / "another.png")
    assert len(all_paths(load_photos(root, cache=cache))) == len(all_paths(in_memory)) + 1


def test_packed_images_are_memory_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_classes(tmp_path / "set", "a", count=4, size=(64, 32))
    write_classes(root, "b", count=4, size=(32, 64))
    monkeypatch.setattr(packing, "PACK_ABOVE_BYTES", 1000)
    data = load_photos(root, cache=tmp_path / "cache")
    assert isinstance(data.train.images, np.memmap)


def test_damaged_pack_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_classes(tmp_path / "set", "a", "b")
    monkeypatch.setattr(packing, "PACK_ABOVE_BYTES", 1000)
    first = load_photos(root, cache=tmp_path / "cache").fingerprint()
    (folder,) = (tmp_path / "cache").iterdir()
    for path in folder.iterdir():
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        assert load_photos(root, cache=tmp_path / "cache").fingerprint() == first
        assert list((tmp_path / "cache").iterdir()) == [folder]


def test_flipped_bytes_beside_the_pack_never_escape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_classes(tmp_path / "set", "a", "b")
    monkeypatch.setattr(packing, "PACK_ABOVE_BYTES", 1000)
    load_photos(root, cache=tmp_path / "cache")
    (folder,) = (tmp_path / "cache").iterdir()
    job = plan_photos(read_path(root), cache=tmp_path / "cache")
    assert find_pack(job) is not None
    generator = np.random.default_rng(0)
    for name in ("beside.npz", "images.npy"):
        original = (folder / name).read_bytes()
        for _ in range(500):
            data_bytes = bytearray(original)
            for place in generator.integers(0, len(data_bytes) if name == "beside.npz" else 128, 4):
                data_bytes[place] = generator.integers(0, 256)
            (folder / name).write_bytes(data_bytes)
            found = find_pack(job)
            assert found is None or len(found.images) == len(found.sizes) == len(found.kept)
        (folder / name).write_bytes(original)


def test_interrupted_packing_leaves_no_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_classes(tmp_path / "set", "a", "b")
    monkeypatch.setattr(packing, "PACK_ABOVE_BYTES", 1000)

    def interrupted(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load_photos(root, cache=tmp_path / "cache", progress=interrupted)
    assert list((tmp_path / "cache").iterdir()) == []


def test_too_little_space_for_a_pack_is_refused_before_decoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_classes(tmp_path / "set", "a", "b")
    monkeypatch.setattr(packing, "PACK_ABOVE_BYTES", 1000)
    monkeypatch.setattr(cache_module.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(100, 50, 50))
    with pytest.raises(DataError, match="GB free; set XDG_CACHE_HOME"):
        load_photos(root, cache=tmp_path / "cache")


def job_of(root: Path, count: int = 6, side: int = 24) -> ImagePlan:
    """A folder of images of several sizes, to be packed beside it."""
    paths = tuple(f"{number}.png" for number in range(count))
    for number, path in enumerate(paths):
        write_picture(root / path, (20 + number, 16), (number, 0, 0))
    layout = Layout("test", root, "", "", kind="test")
    files = tuple(Found(path, False, "a", None) for path in paths)
    return ImagePlan(layout, files, side=side, channels=3, cache=root.parent / "cache")


def test_a_pack_that_is_there_is_used_whatever_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_classes(tmp_path / "set", "a", count=4, size=(64, 32))
    write_classes(root, "b", count=4, size=(32, 64))
    cache = tmp_path / "cache"
    in_memory = load_photos(root, cache=cache)
    assert not isinstance(in_memory.train.images, np.memmap)
    make_pack(plan_photos(read_path(root), cache=cache))

    def no_decoding(*_: object) -> None:
        raise AssertionError("decoded again")

    monkeypatch.setattr(packing, "decode", no_decoding)
    packed = load_photos(root, cache=cache)
    assert isinstance(packed.train.images, np.memmap)
    assert packed.fingerprint() == in_memory.fingerprint()


def test_a_pack_holds_what_decoding_in_memory_gives(tmp_path: Path) -> None:
    job = job_of(tmp_path / "set")
    (job.layout.root / "2.png").write_text("not an image")
    in_memory, packed = packing.pack(job), make_pack(job)
    assert in_memory.folder is None
    assert packed.folder is not None
    for found in (packed, packing.pack(job)):
        assert np.array_equal(found.images, in_memory.images)
        assert np.array_equal(found.sizes, in_memory.sizes)
        assert found.kept == [0, 1, 3, 4, 5]
        assert found.failures == in_memory.failures == {2: "not an image of a known format"}


@pytest.mark.parametrize("decoded", [packing.pack, make_pack])
def test_a_listed_file_that_is_not_there_is_left_out(tmp_path: Path, decoded) -> None:
    job = job_of(tmp_path / "set")
    (job.layout.root / "1.png").unlink()
    found = decoded(job)
    assert found.failures == {1: "No such file or directory"}
    write_picture(job.layout.root / "1.png")
    assert find_pack(job) is None
    assert decoded(job).failures == {}


def test_a_touched_file_makes_a_new_pack_and_the_old_one_goes(tmp_path: Path) -> None:
    job = job_of(tmp_path / "set")
    other = replace(job, side=12)
    first, beside = make_pack(job).folder, make_pack(other).folder
    write_picture(job.layout.root / "0.png", (20, 16), (9, 9, 9))
    assert find_pack(job) is None
    second = make_pack(job)
    assert second.folder is not None
    assert second.folder != first
    assert second.images[0, :, 0, 0].tolist() == [9, 9, 9]
    assert set(job.cache.iterdir()) == {second.folder, beside}


def test_files_that_change_while_they_are_decoded_leave_no_pack(tmp_path: Path) -> None:
    job = job_of(tmp_path / "set")

    def change(_done: int, _total: int) -> None:
        write_picture(job.layout.root / "0.png", (7, 7))

    with pytest.raises(DataError, match="changed while they were read"):
        make_pack(job, change)
    assert list(job.cache.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="folders are not locked there")
def test_a_killed_packing_leaves_no_pack_and_is_cleaned_up_by_the_next(tmp_path: Path) -> None:
    job = job_of(tmp_path / "set")
    code = f"""
        import os, signal
        from pathlib import Path
        from maskcon.data.folder_layout import Found, Layout
        from maskcon.data.packing import ImagePlan, make_pack
        root, cache = Path({str(job.layout.root)!r}), Path({str(job.cache)!r})
        files = {job.files!r}
        plan = ImagePlan(Layout("test", root, "", "", kind="test"), files, side=24, channels=3, cache=cache)
        make_pack(plan, lambda done, total: os.kill(os.getpid(), signal.SIGKILL))
    """
    killed = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert [path.name.startswith("packing-") for path in job.cache.iterdir()] == [True]
    assert find_pack(job) is None
    make_pack(job)
    assert list(job.cache.iterdir()) == [make_pack(job).folder]


@pytest.mark.skipif(os.name != "posix", reason="folders are not locked there")
def test_packing_waits_for_another_one_and_does_not_touch_its_files(tmp_path: Path) -> None:
    job = job_of(tmp_path / "set")
    theirs = job.cache / "packing-theirs"
    theirs.mkdir(parents=True)
    with one_at_a_time(job.cache) as held:
        assert held
        waiting = threading.Thread(target=make_pack, args=(job,))
        waiting.start()
        waiting.join(0.5)
        assert waiting.is_alive()
        assert theirs.is_dir()
        assert find_pack(job) is None
    waiting.join(30)
    assert find_pack(job) is not None
    assert not theirs.exists()


@pytest.mark.skipif(os.name != "posix", reason="folders are not locked there")
def test_two_that_pack_the_same_decode_once(tmp_path: Path) -> None:
    job = job_of(tmp_path / "set")
    calls: list[int] = []
    threads = [
        threading.Thread(target=make_pack, args=(job, lambda done, _: calls.append(done))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert calls == [6]
    assert find_pack(job) is not None


def test_file_that_disappears_before_packing_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_classes(tmp_path / "set", "a", "b")
    monkeypatch.setattr(packing, "PACK_ABOVE_BYTES", 1000)
    files_key = packing.files_key

    def late(*arguments: Any) -> str:
        (root / "a" / "3.png").unlink(missing_ok=True)
        return files_key(*arguments)

    monkeypatch.setattr(packing, "files_key", late)
    data = load_photos(root, cache=tmp_path / "cache")
    assert len(all_paths(data)) == 19
    assert any("a/3.png" in note for note in data.notes)


def test_results_come_in_order_and_progress_counts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "usable_cores", lambda: 4)
    told: list[tuple[int, int]] = []
    count = packing.BLOCK_FILES * 10 + 5
    found = packing.map_files(lambda row: row**2, count, lambda done, total: told.append((done, total)))
    assert found == [row**2 for row in range(count)]
    steps = [*range(packing.BLOCK_FILES, count, packing.BLOCK_FILES), count]
    assert told == [(done, count) for done in steps]
    assert packing.map_files(lambda row: row, 0) == []


def test_a_slow_file_does_not_hold_up_those_of_the_next_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "usable_cores", lambda: 2)
    next_block_is_read = threading.Event()

    def work(row: int) -> bool:
        if row == 2 * packing.BLOCK_FILES - 1:
            next_block_is_read.set()
        return next_block_is_read.wait(30) if row == 0 else True

    assert all(packing.map_files(work, 4 * packing.BLOCK_FILES))


def test_every_usable_core_gets_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "usable_cores", lambda: 24)
    together = threading.Barrier(24)
    assert sorted(packing.map_files(lambda _: together.wait(30), 24)) == list(range(24))


def test_interrupt_does_not_wait_for_queued_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packing, "usable_cores", lambda: 1)
    begun: list[int] = []
    stopped = threading.Event()

    def work(row: int) -> None:
        begun.append(row)
        if row >= packing.BLOCK_FILES:  # the first block is through, so the first call of progress comes
            stopped.wait(30)

    def stop(_done: int, _total: int) -> None:
        threading.Timer(0.2, stopped.set).start()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        packing.map_files(work, packing.BLOCK_FILES * 8, stop)
    assert len(begun) <= packing.BLOCK_FILES + 1

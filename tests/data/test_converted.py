from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import tracemalloc
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest

from maskcon._utils.errors import DataError
from maskcon.data import cache as cache_module
from maskcon.data.builtin import imagenet32
from maskcon.data.builtin.imagenet32 import load_imagenet32
from tests.data.miniature_imagenet32 import (
    assert_is_the_miniature,
    assert_nothing_was_kept,
    write_batch,
    write_imagenet32,
)
from tests.data.miniatures import random_pixels

SOURCE = Path(__file__).parents[2] / "src"
pytestmark = pytest.mark.usefixtures("conversions")


def test_later_loads_map_the_conversion_and_read_no_pickle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_imagenet32(tmp_path / "root")
    first = load_imagenet32(tmp_path / "root").fingerprint()

    def refuse(path: Path, **_: range) -> None:
        raise AssertionError(f"{path} was read again")

    monkeypatch.setattr(imagenet32, "read_batch", refuse)
    again = load_imagenet32(tmp_path / "root")
    assert again.fingerprint() == first
    assert isinstance(again.train.images, np.memmap)
    assert not again.train.images.flags.writeable


def test_progress_counts_batch_files(tmp_path: Path) -> None:
    write_imagenet32(tmp_path / "root")
    seen: list[tuple[int, int | None]] = []
    load_imagenet32(tmp_path / "root", progress=lambda done, total: seen.append((done, total)))
    assert seen == [(done, 11) for done in range(1, 12)]


def test_changed_files_are_converted_anew_and_the_old_conversion_goes(
    tmp_path: Path, conversions: Path
) -> None:
    root = tmp_path / "root"
    write_imagenet32(root)
    load_imagenet32(root)
    (before,) = conversions.iterdir()
    write_batch(root / "train_data_batch_2", 2, data=random_pixels(6, seed=99))
    os.utime(root / "train_data_batch_2", ns=(1, 1))  # whatever the clock's resolution
    data = load_imagenet32(root)
    assert np.array_equal(data.train.images[6:12].reshape(6, -1), random_pixels(6, seed=99))
    (after,) = conversions.iterdir()
    assert after != before


def test_conversions_of_two_roots_live_side_by_side(tmp_path: Path, conversions: Path) -> None:
    for name in ("one", "two"):
        write_imagenet32(tmp_path / name)
        load_imagenet32(tmp_path / name)
    assert len(list(conversions.iterdir())) == 2


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


def test_two_loads_at_once_convert_once(tmp_path: Path, conversions: Path) -> None:
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
    assert len(list(conversions.iterdir())) == 1


def test_killed_conversion_is_cleared_away_by_the_next(tmp_path: Path, conversions: Path) -> None:
    write_imagenet32(tmp_path / "root")
    code = f"""
        import os, signal
        from pathlib import Path
        from maskcon.data.builtin.imagenet32 import load_imagenet32
        def progress(done, total):
            if done == 5:
                os.kill(os.getpid(), signal.SIGKILL)
        load_imagenet32(Path({str(tmp_path / "root")!r}), progress=progress)
    """
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=environment)
    assert done.returncode == -signal.SIGKILL
    (left,) = conversions.iterdir()
    assert left.name.startswith("packing-")
    assert_is_the_miniature(load_imagenet32(tmp_path / "root"))
    (folder,) = conversions.iterdir()
    assert folder.name.startswith("imagenet32-")


@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError(errno.ENOSPC, "No space left on device")])
def test_interrupt_or_full_disk_leaves_nothing(
    tmp_path: Path, conversions: Path, monkeypatch: pytest.MonkeyPatch, stop: Any
) -> None:
    write_imagenet32(tmp_path / "root")
    written = []

    def sync(file: BinaryIO) -> None:
        written.append(Path(file.name).name)
        raise stop

    monkeypatch.setattr(imagenet32, "sync_file", sync)
    expected = DataError if isinstance(stop, OSError) else KeyboardInterrupt
    with pytest.raises(expected) as error:
        load_imagenet32(tmp_path / "root")
    assert written == ["train.images"]
    assert expected is KeyboardInterrupt or "No space left" in str(error.value)
    assert_nothing_was_kept(conversions)


def test_too_little_space_is_refused_before_anything_is_written(
    tmp_path: Path, conversions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_imagenet32(tmp_path / "root")
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(cache_module.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(DataError, match=r"converting needs about .* GB .*XDG_CACHE_HOME"):
        load_imagenet32(tmp_path / "root")
    assert_nothing_was_kept(conversions)


@pytest.mark.parametrize("damage", ["train.images", "test.images", "labels.npz"])
def test_damaged_conversion_is_made_anew(tmp_path: Path, conversions: Path, damage: str) -> None:
    write_imagenet32(tmp_path / "root")
    load_imagenet32(tmp_path / "root")
    (folder,) = conversions.iterdir()
    content = bytearray((folder / damage).read_bytes())
    content[3] ^= 1
    (folder / damage).write_bytes(content[:-1])
    assert_is_the_miniature(load_imagenet32(tmp_path / "root"))


def test_asking_for_a_conversion_again_finds_it(tmp_path: Path) -> None:
    write_imagenet32(tmp_path / "root")
    read: list[int] = []
    for _ in range(2):
        load_imagenet32(tmp_path / "root", progress=lambda done, _: read.append(done))
    assert read == list(range(1, 12))


def test_files_that_change_during_the_conversion_are_not_kept(tmp_path: Path, conversions: Path) -> None:
    write_imagenet32(tmp_path / "root")

    def progress(done: int, _: int | None) -> None:
        if done == 8:
            os.utime(tmp_path / "root" / "train_data_batch_1", ns=(1, 1))

    with pytest.raises(DataError, match="changed while"):
        load_imagenet32(tmp_path / "root", progress=progress)
    assert_nothing_was_kept(conversions)

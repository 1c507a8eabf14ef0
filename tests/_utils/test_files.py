from __future__ import annotations

import errno
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from maskcon._utils import files
from maskcon._utils.errors import MaskconError
from maskcon._utils.files import (
    make_folder,
    replacing,
    reserve,
    sync_folder,
    write_all,
    write_atomically,
    write_synced,
)
from tests._utils.handles import lowest_free_handle


def test_file_is_complete_when_the_disk_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, synced = tmp_path / "file", []
    monkeypatch.setattr(os, "fsync", lambda _: synced.append(path.read_bytes()))
    write_synced(path, b"content")
    assert synced == [b"content"]


def test_all_is_written_where_the_system_takes_only_parts(tmp_path: Path) -> None:
    class Reluctant(io.FileIO):
        def write(self, data: Any, /) -> int:
            return super().write(data[:3])

    with Reluctant(tmp_path / "file", "wb") as file:
        write_all(file, b"ten bytes.")
    assert (tmp_path / "file").read_bytes() == b"ten bytes."


def test_system_that_cannot_sync_folders_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "fsync", refuse)
    sync_folder(tmp_path)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_folder_that_cannot_be_synced_is_an_error(tmp_path, monkeypatch, number):
    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match=os.strerror(number)):
        sync_folder(tmp_path)
    monkeypatch.setattr(files, "sync_file", lambda file: None)
    with pytest.raises(MaskconError, match=r"a power loss may undo that: .*; rerun the same command"):
        write_atomically(tmp_path / "file", b"content")


def test_the_folders_above_new_ones_are_synced(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(files, "sync_folder", lambda folder: synced.append(folder.relative_to(tmp_path)))
    make_folder(tmp_path / "runs" / "first" / "checkpoints")
    assert synced == [Path(), Path("runs"), Path("runs/first")]
    make_folder(tmp_path / "runs" / "first")
    assert len(synced) == 3


def test_room_is_claimed_and_a_file_system_that_cannot_do_that_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file:
        reserve(file, 4096)
        assert path.stat().st_size == (4096 if hasattr(os, "posix_fallocate") else 0)
        for number, fails in ((errno.EOPNOTSUPP, False), (errno.EINVAL, False), (errno.ENOSPC, True)):

            def refuse(*_: int, number: int = number) -> None:
                raise OSError(number, os.strerror(number))

            monkeypatch.setattr(os, "posix_fallocate", refuse, raising=False)
            if fails:
                with pytest.raises(OSError, match="No space left"):
                    reserve(file, 8192)
            else:
                reserve(file, 8192)


def test_replacing_a_file_never_shows_half_of_it(tmp_path, monkeypatch):
    target = tmp_path / "result.json"
    write_atomically(target, b'{"old": 1}')

    def full(file):
        file.truncate(3)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "sync_file", full)
    with pytest.raises(MaskconError, match="could not write"):
        write_atomically(target, b'{"new": 2}')
    assert json.loads(target.read_bytes()) == {"old": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


def test_an_error_inside_the_block_passes_and_leaves_the_old_file(tmp_path):
    target = tmp_path / "file"
    write_atomically(target, b"old")
    with pytest.raises(KeyError), replacing(target):
        raise KeyError
    assert target.read_bytes() == b"old"


def test_syncing_a_folder_leaves_no_open_file(tmp_path):
    before = lowest_free_handle()
    sync_folder(tmp_path)
    assert lowest_free_handle() == before


def test_a_folder_that_another_process_makes_meanwhile_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "runs").mkdir()
    answers = iter([False])  # the first look comes too early
    monkeypatch.setattr(Path, "is_dir", lambda self: next(answers, True))
    make_folder(tmp_path / "runs")


class Ended(BaseException):
    pass


@pytest.fixture
def ends(monkeypatch):
    def end(status):
        assert status == 99
        raise Ended

    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(files, "_passed", {})


@pytest.mark.parametrize(("named", "survived"), [("here", 0), ("here:1", 0), ("here:3", 2)])
def test_process_ends_at_the_named_turn_of_a_failpoint(monkeypatch, ends, named, survived):
    monkeypatch.setenv(files.FAILPOINT, named)
    files.failpoint("elsewhere")
    for _ in range(survived):
        files.failpoint("here")
    for _ in range(2):
        with pytest.raises(Ended):
            files.failpoint("here")


def test_a_process_that_ends_before_the_rename_leaves_the_old_file(tmp_path, monkeypatch, ends):
    write_atomically(tmp_path / "file", b"old")
    monkeypatch.setenv(files.FAILPOINT, "file-before-rename")
    with pytest.raises(Ended):
        write_atomically(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"old"

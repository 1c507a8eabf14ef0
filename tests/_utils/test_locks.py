from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from maskcon._utils import files
from maskcon._utils.errors import UsageError
from maskcon._utils.files import FolderLock, one_at_a_time
from tests._utils.handles import lowest_free_handle

pytestmark = pytest.mark.skipif(files.fcntl is None, reason="folders are not locked there")


def test_killed_process_releases_its_lock(tmp_path: Path) -> None:
    code = "import fcntl, os, sys; fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX); print(1, flush=True)"
    command = [sys.executable, "-c", code + "; sys.stdin.read()", str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        other.kill()
        with one_at_a_time(tmp_path) as is_locked:
            assert is_locked


def test_folder_that_cannot_be_locked_is_entered_without_a_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(files.fcntl, "flock", refuse)
    with one_at_a_time(tmp_path) as is_locked:
        assert not is_locked


def test_error_inside_releases_the_lock(tmp_path: Path) -> None:
    with pytest.raises(KeyError), one_at_a_time(tmp_path):
        raise KeyError
    with one_at_a_time(tmp_path) as is_locked:
        assert is_locked


def test_on_wait_is_called_once_and_only_by_a_waiting_process(tmp_path: Path) -> None:
    calls: list[str] = []
    other = os.open(tmp_path, os.O_RDONLY)

    def on_wait() -> None:
        calls.append("waits")
        os.close(other)  # the other one ends

    files.fcntl.flock(other, files.fcntl.LOCK_EX)
    with one_at_a_time(tmp_path, on_wait) as is_locked:
        assert is_locked
    with one_at_a_time(tmp_path, on_wait) as is_locked:
        assert is_locked
    assert calls == ["waits"]


def test_system_without_locks_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "fcntl", None)
    with one_at_a_time(tmp_path) as is_locked:
        assert not is_locked
    with FolderLock(tmp_path), FolderLock(tmp_path):
        pass


def test_folder_is_refused_while_its_lock_is_held_and_free_afterwards(tmp_path: Path) -> None:
    before = lowest_free_handle()
    with FolderLock(tmp_path) as lock:
        assert lock.folder == tmp_path
        for _ in range(2):
            with (
                pytest.raises(UsageError, match="another run or explorer is writing to"),
                FolderLock(tmp_path),
            ):
                pass
    with FolderLock(tmp_path):
        pass
    assert lowest_free_handle() == before


def test_lock_can_be_left_twice(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path)
    lock.__exit__(None, None, None)
    with lock:
        pass
    lock.__exit__(None, None, None)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not fork there")
def test_folder_of_a_living_process_is_refused_and_of_a_killed_one_free(tmp_path: Path) -> None:
    for _ in range(20):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            with FolderLock(tmp_path):
                os.write(writing, b"1")
                signal.pause()
        os.read(reading, 1)
        with pytest.raises(UsageError, match="another run or explorer is writing to"), FolderLock(tmp_path):
            pass
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with FolderLock(tmp_path):
            pass
        os.close(reading)
        os.close(writing)

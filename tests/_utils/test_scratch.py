"""Scratch folders go with their process: at once, or when the next one comes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from maskcon._utils.scratch import YOUNG_SECONDS, scratch_beside

pytest.importorskip("fcntl")  # elsewhere nothing is known of who is alive

WAITING = """
import sys
from pathlib import Path
from maskcon._utils.scratch import scratch_beside

with scratch_beside(Path(sys.argv[1])) as scratch:
    (scratch / "half").write_text("written")
    print(scratch, flush=True)
    sys.stdin.read()
"""


def scratch_folders(target: Path) -> list[Path]:
    return [path for path in target.parent.iterdir() if path.name.startswith(".")]


def grown_old(folder: Path) -> None:
    before = time.time() - 2 * YOUNG_SECONDS
    os.utime(folder, (before, before))


@pytest.mark.parametrize("name", ["export", "a [b] *c? d", "图"])
def test_what_a_killed_process_left_goes_when_the_next_one_comes(tmp_path: Path, name: str) -> None:
    target = tmp_path / name
    process = subprocess.Popen(
        [sys.executable, "-c", WAITING, str(target)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        left = Path(process.stdout.readline().strip())
        grown_old(left)
        with scratch_beside(target) as own:
            assert left.is_dir()  # its process is alive
            assert own != left
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert scratch_folders(target) == [left]
    with scratch_beside(target) as own:
        assert scratch_folders(target) == [own]
    assert scratch_folders(target) == []


def test_a_young_folder_a_file_and_a_link_of_such_names_stay(tmp_path: Path) -> None:
    young, file, link = (tmp_path / f".export-scratch-{name}" for name in ("young", "file", "link"))
    young.mkdir()
    file.write_text("mine")
    (tmp_path / "mine").mkdir()
    link.symlink_to(tmp_path / "mine")
    grown_old(file)
    grown_old(tmp_path / "mine")
    with scratch_beside(tmp_path / "export"):
        pass
    assert sorted(scratch_folders(tmp_path / "export")) == sorted([young, file, link])
    assert (tmp_path / "mine").is_dir()

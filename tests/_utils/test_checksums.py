"""Checksums of a folder: what `sha256sum -c` reads, and what is told of each file."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from maskcon._utils.errors import CorruptFileError, UsageError
from maskcon._utils.files import SUMS, checksums, file_states, read_checksums

CONTENTS = {"a": b"one", "b c": b"two"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in {**CONTENTS, SUMS: checksums(CONTENTS)}.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


def test_sha256sum_agrees(folder: Path) -> None:
    done = subprocess.run(["sha256sum", "-c", SUMS], cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "a: OK\nb c: OK\n")


def test_each_state_is_told(folder: Path) -> None:
    assert file_states(folder, ["a"]) == {"a": "intact", "b c": "intact"}
    (folder / "a").write_bytes(b"onf")
    (folder / "b c").unlink()
    listed = {"a": "has changed", "b c": "has been lost"}
    assert file_states(folder, ["a", "d"]) == {
        **listed,
        "d": "has no checksum in SHA256SUMS, which has changed",
    }


def test_a_folder_without_checksums_has_no_states(tmp_path: Path) -> None:
    assert file_states(tmp_path) == {}


@pytest.mark.parametrize("line", ["a", f"{'0' * 63}  a", f"{'0' * 65}  a", f"{'0' * 64} a", "\u00e9"])
def test_a_damaged_line_is_refused(folder: Path, line: str) -> None:
    with pytest.raises(ValueError):
        read_checksums(line.encode())
    (folder / SUMS).write_text(line)
    with pytest.raises(CorruptFileError, match=r"cannot be read .* delete it to use the run unchecked"):
        file_states(folder, what="the run")


def test_a_folder_in_place_of_a_file_cannot_be_read(folder: Path) -> None:
    (folder / "a").unlink()
    (folder / "a").mkdir()
    with pytest.raises(UsageError, match=r"cannot read .*: Is a directory"):
        file_states(folder)


def test_a_pipe_in_place_of_a_file_is_refused_at_once(folder: Path) -> None:
    (folder / "a").unlink()
    os.mkfifo(folder / "a")
    with pytest.raises(UsageError, match=r"cannot read"):
        file_states(folder)

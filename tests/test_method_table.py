"""The scripts that make the tables refuse in one line what they cannot do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def refused(*arguments: str, cwd: Path, script: str = "method_table.py") -> str:
    """The one line that it says."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / script), *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.strip().splitlines()
    return line


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["embedded", "train"], "has no chosen.json yet; run the stage search first"),
        (["embedded", "search", "--methods", "maskcom"], "did you mean 'maskcon'?"),
        (["cifartoy-bad", "search", "--methods", "selfcon"], "unknown method 'selfcon'"),
        (["cifartoy-good", "all"], "needs --images"),
        (["cifartoy-good", "all", "--images", "nowhere"], "has 0 pictures; 1500 are needed"),
        (["embedded", "search", "--out", "file/below"], "choose another --out"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_an_exit_code(
    arguments: list[str], told: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    assert told in refused(*arguments, cwd=tmp_path)


def test_settings_that_were_not_chosen_yet_are_named(tmp_path: Path) -> None:
    (tmp_path / "chosen.json").write_text("{}")
    line = refused("embedded", "train", "--methods", "maskcon,coins", "--out", ".", cwd=tmp_path)
    assert "no settings for maskcon, coins" in line


def test_both_starts_need_pictures(tmp_path: Path) -> None:
    line = refused("--images", "nowhere", cwd=tmp_path, script="both_starts.py")
    assert "has 0 pictures; 500 are needed" in line

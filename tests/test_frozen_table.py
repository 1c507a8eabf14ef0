"""The script that makes the tables of a frozen backbone refuses in one line what it cannot do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["good", "all", "--images", "nowhere"], "has 0 pictures; 500 are needed"),
        (["bad", "search", "--images", "nowhere", "--methods", "maskcom"], "did you mean 'maskcon'?"),
        (["good", "train", "--images", "nowhere", "--out", "file/below"], "choose another --out"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_an_exit_code(
    arguments: list[str], told: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "frozen_table.py"), *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert told in line


def test_every_method_is_tried_as_often_as_any_other() -> None:
    code = "import frozen_table as f; print(len(f.TRIALS), {len(trials) for trials in f.TRIALS.values()})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'benchmarks'}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "10 {10}"

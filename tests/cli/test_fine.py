"""`maskcon train --fine kinds.csv` on a folder of images."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from maskcon.cli import app
from tests.cli.commands import QUICK
from tests.cli.in_process import pictures, refused

FAST = [*QUICK, "--method", "maskcon", "--set", "image_size=16", "--device", "cpu"]


@pytest.fixture(autouse=True)
def photos(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    pictures("photos", ["apple", "pear"])
    lines = [f"apple/{number}.png,apple,{'red' if number % 2 else 'green'}" for number in range(8)]
    Path("kinds.csv").write_text("\n".join(["path,coarse,kind", *lines]), encoding="utf-8")


def test_names_of_a_folder_are_used_recorded_and_told(tmp_path):
    done = CliRunner().invoke(app, ["train", "photos", "--fine", "kinds.csv", *FAST, "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["run"] == "runs/photos-maskcon-named-seed0"  # beside the run without names
    assert result["named_kinds"] == 2
    assert f"kinds.csv: 2 kinds named, in {result['named_images']} training images" in done.output


def test_dry_run_shows_the_names_file():
    shown = CliRunner().invoke(app, ["train", "photos", "--fine", "kinds.csv", *FAST, "--dry-run"])
    (line,) = [line for line in shown.output.splitlines() if line.startswith("fine ")]
    assert line.split()[:3] == ["fine", "kinds.csv", "given"]


def test_bad_names_are_refused_in_one_line():
    Path("wrong.csv").write_text("path,coarse,kind\napple/0.png,apple,red\napple/0.png,apple,green\n")
    assert "wrong.csv, line 3: apple/0.png is in line 2 already" in refused(
        "train", "photos", "--fine", "wrong.csv", *FAST
    )
    assert "absent.csv cannot be read" in refused("train", "photos", "--fine", "absent.csv", *FAST)
    assert "choose a --method of: " in refused(
        "train", "photos", "--fine", "kinds.csv", *FAST, "--method", "selfcon"
    )
    assert "names no training image of embedded" in refused(
        "train", "embedded", "--fine", "kinds.csv", *QUICK
    )
    assert not Path("runs").exists()

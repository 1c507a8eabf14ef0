"""`maskcon tune` from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from maskcon.api import tune as api_tune
from maskcon.cli import app
from maskcon.discovery.tuning import Setting, rank_settings
from maskcon.training import trials
from tests.cli.in_process import pictures, refused


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def tuned(monkeypatch):
    settings = [Setting(0.0, 0.1), Setting(1.0, 0.05), Setting(1.0, float("inf"))]
    scores = np.array([[0.1, 0.2], [0.5, 0.6], [0.4, 0.61]])
    result = api_tune.Tuned(rank_settings(settings, scores), {"rankme": np.ones(3)})
    data = SimpleNamespace(train=SimpleNamespace(coarse=np.arange(3)))
    monkeypatch.setattr(trials, "open_trials", lambda *given: (given[-1](data), None))
    monkeypatch.setattr(api_tune, "tune", lambda *given: result)


def test_the_choice_its_reason_and_the_command_are_printed(tuned):
    done = CliRunner().invoke(app, ["tune", "photos", "--set", "train_limit=500"])
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[-1] == (
        "maskcon train photos --freeze --method maskcon --set train_limit=500 --w 1 --tau 0.05"
    )
    assert any("mean rank 1.5 of 3 in 2 rounds by recall@1 of the coarse classes" in line for line in lines)
    assert "runner-up may be as good" in done.stdout


def test_json_holds_every_setting_and_the_command(tuned):
    done = CliRunner().invoke(app, ["tune", "photos", "--json"])
    told = json.loads(done.stdout)
    assert told["chosen"] == {"w": 1.0, "tau": 0.05}
    assert [row["tau"] for row in told["settings"]] == [0.05, "inf", 0.1]
    assert told["command"].endswith("--w 1 --tau 0.05")


def test_what_cannot_be_tuned_is_refused():
    pictures("photos", ["apple", "pear"])
    assert "SupCon does not have both w and tau" in refused("tune", "photos", "--method", "supcon")
    assert "--download" in refused("tune", "photos")  # no weights on this machine
    assert not Path("runs").exists()


def test_two_coarse_classes_are_refused_before_anything_is_embedded_or_written(monkeypatch):
    def embedding(*_given):
        pytest.fail("the images were embedded")

    monkeypatch.setattr(trials, "require_weights", lambda *_given, **_settings: None)
    monkeypatch.setattr(trials, "FrozenTrials", embedding)
    pictures("photos", ["apple", "pear"])
    assert "photos has 2 coarse classes; 3 are needed" in refused("tune", "photos")
    assert not Path("runs").exists()

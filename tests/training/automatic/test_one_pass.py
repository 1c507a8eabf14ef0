"""`maskcon train ./photos` plans the data, completes the settings and builds the learner once, through few files."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from safetensors.torch import save_file
from typer.testing import CliRunner

from maskcon.cli import app
from maskcon.models import build_backbone
from tests.training.automatic.deciding import SMALL_NET

FileTrace = runpy.run_path(str(Path(__file__).parents[3] / "scripts" / "trace_files.py"))["FileTrace"]

MOST_FILES = 57
ONCE = {
    ("data/photos.py", "plan_photos"),
    ("data/photos.py", "read_headers"),
    ("config/resolution.py", "resolve"),
    ("training/setup.py", "settle"),
    ("training/distributed.py", "start"),
    ("training/setup.py", "assemble"),
    ("training/state.py", "build_learner"),
    ("data/packing.py", "pack"),
}


def traced(*arguments: str):
    small = [f"{key}={value}" for key, value in {**SMALL_NET, "image_size": 16}.items()]
    command = ["train", "photos", "--device", "cpu", *arguments]
    if "--freeze" not in arguments:
        command += [word for pair in small for word in ("--set", pair)]
    trace = FileTrace()
    with trace:
        result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    return trace


@pytest.mark.usefixtures("photos", "machine")
@pytest.mark.parametrize(
    "arguments", [["--epochs", "1"], ["--budget", "10m"], ["--preset", "cpu", "--epochs", "1"]]
)
def test_data_settings_and_state_are_made_once(arguments, monkeypatch):
    monkeypatch.setattr("maskcon.config.choices.LONGEST_RUN", 1)
    calls = traced(*arguments).calls
    assert {name: calls[name] for name in ONCE} == dict.fromkeys(ONCE, 1)


@pytest.mark.usefixtures("photos", "machine")
@pytest.mark.parametrize("length", [["--epochs", "1"], ["--budget", "10m"]])
def test_so_they_are_with_a_frozen_backbone(length, monkeypatch):
    monkeypatch.setattr("maskcon.config.choices.FROZEN_LIMIT", 1)
    net = build_backbone("resnet6", image_size=16, in_channels=3, width=8, stem="stride2")
    save_file(net.state_dict(), "weights.safetensors")
    values = {"weights": "weights.safetensors", "backbone": "resnet6", "width": 8, "stem": "stride2"}
    given = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
    calls = traced("--freeze", *length, *given, "--set", "image_size=16").calls
    once = {
        *ONCE,
        ("training/frozen/features.py", "frozen_backbone"),
        ("training/frozen/features.py", "_read"),
    }
    assert {name: calls[name] for name in once} == dict.fromkeys(once, 1)


@pytest.mark.usefixtures("photos", "machine")
def test_a_run_passes_through_few_files():
    files = traced("--epochs", "1").files
    assert len(files) <= MOST_FILES, files

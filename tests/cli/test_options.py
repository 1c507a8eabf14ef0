"""Options that mean the same in every command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from maskcon.cli import app
from tests.cli.commands import SMALL
from tests.cli.in_process import pictures

TRAIN = ["embedded", "--method", "selfcon", "--preset", "cpu", *SMALL, "--out", "run"]
PLACES = {
    "train": TRAIN,
    "evaluate": ["run"],
    "embed": ["run", "photos"],
    "kinds": ["run"],
    "index": ["run", "photos"],
    "export": ["run"],
    "inspect": ["photos"],
    "methods": [],
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("options")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        pictures("photos", ["a", "b"])
        assert CliRunner().invoke(app, ["train", *TRAIN]).exit_code == 0
    return folder


@pytest.mark.parametrize("command", PLACES)
def test_quiet_prints_nothing_and_json_prints_one_object(
    command: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))
    spoken = CliRunner().invoke(app, [command, *PLACES[command], "--json", "--quiet"])
    assert spoken.exit_code == 0, spoken.output
    assert spoken.stderr == ""
    json.loads(spoken.stdout)
    silent = CliRunner().invoke(app, [command, *PLACES[command], "-q"])
    assert (silent.exit_code, silent.output) == (0, "")


def test_every_command_takes_the_shared_options() -> None:
    root = typer.main.get_command(app)
    commands = dict(root.commands)  # type: ignore[attr-defined]
    for name, command in commands.items():
        declared = {option for parameter in command.params for option in parameter.opts}
        assert "--quiet" in declared, name
        quiet = next(parameter for parameter in command.params if "--quiet" in parameter.opts)
        assert ("--json" in quiet.help) == ("--json" in declared), name  # type: ignore[attr-defined]
        assert "--json" in declared or name in ("report", "explore"), name  # these print no figures
        if "--out" in declared:
            assert "-o" in declared, name

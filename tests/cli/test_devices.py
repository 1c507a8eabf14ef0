"""Where a command computes: by default on the best device there is, said alike by all."""

from __future__ import annotations

import pytest
import typer.main

from maskcon.cli import app
from maskcon.cli.options import Device

WITH_DEVICE = ("inspect", "train", "compare", "evaluate", "report", "embed", "index", "search")


@pytest.mark.parametrize("name", WITH_DEVICE)
def test_a_command_takes_the_best_device_unless_told_and_says_so_as_train_does(name: str) -> None:
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    option = next(option for option in command.params if option.name == "device")
    assert (option.default, option.opts) == ("auto", ["--device"])
    assert option.help == Device.__metadata__[0].help  # type: ignore[attr-defined]

"""One call that decides for a source, a small net, and one who hears what was chosen."""

from __future__ import annotations

from pathlib import Path

from maskcon.config.settings import Machine
from maskcon.training.automatic import Completed, complete_settings
from maskcon.training.callbacks import Callback
from tests.miniature import TINY

SMALL_NET = {key: TINY[key] for key in ("backbone", "width", "stem", "projection_dim")}


class Heard(Callback):
    def __init__(self) -> None:
        self.choices: list[str] = []
        self.messages: list[str] = []

    def on_choice(self, line: str) -> None:
        self.choices.append(line)

    def on_message(self, text: str) -> None:
        self.messages.append(text)


def decided(source: object, machine: Machine, folder: Path, **changes) -> Completed:
    values = {
        "method": "maskcon",
        "preset": "cpu",
        "overrides": {},
        "choose": True,
        "budget": None,
        **changes,
    }
    return complete_settings(source, folder=folder, machine=machine, callback=Heard(), **values)

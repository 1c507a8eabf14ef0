"""Whole runs on a miniature data set, in seconds."""

from __future__ import annotations

import maskcon
from maskcon.config import Machine
from maskcon.observer import Announcer
from tests.miniature import TINY, miniature

OFTEN = Machine(checkpoint_every_seconds=0, journal_every_steps=1, device="cpu")


class Told(Announcer):
    """Keeps what was said."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.evaluations: list[dict] = []

    def on_message(self, text: str) -> None:
        self.messages.append(text)

    def on_evaluation(self, values) -> None:
        self.evaluations.append(dict(values))


def fit(folder, *, data=None, machine=OFTEN, announce=None, method="maskcon", preset="cpu", **changes):
    return maskcon.fit(
        data if data is not None else miniature(),
        method=method,
        preset=preset,
        out=folder,
        settings={**TINY, **changes},
        machine=machine,
        announce=announce,
    )


def weights(folder) -> bytes:
    return (folder / "encoder.safetensors").read_bytes()

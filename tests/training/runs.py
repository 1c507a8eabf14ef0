"""Whole runs on a miniature data set, in seconds."""

from __future__ import annotations

import maskcon
from maskcon.config.settings import Machine
from maskcon.training.callbacks import Callback
from tests.miniature import TINY, miniature

OFTEN = Machine(checkpoint_every_seconds=0, device="cpu")


class Told(Callback):
    """Keeps what was said."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.evaluations: list[dict] = []

    def on_message(self, text: str) -> None:
        self.messages.append(text)

    def on_evaluation(self, values) -> None:
        self.evaluations.append(dict(values))


def fit(folder, *, data=None, machine=OFTEN, callback=None, method="maskcon", preset="cpu", **changes):
    return maskcon.fit(
        data if data is not None else miniature(),
        method=method,
        preset=preset,
        out=folder,
        settings={**TINY, **changes},
        machine=machine,
        callback=callback,
    )


class Stopping(Callback):
    """Stops a run right after its first evaluation."""

    def on_evaluation(self, values) -> None:
        raise KeyboardInterrupt


def ends_as_if_never_stopped(folder, **settings) -> bool:
    """Whether a run that was stopped after its first evaluation, and goes on, ends with the weights of a whole one."""
    try:
        fit(folder / "stopped", **settings, callback=Stopping())
    except KeyboardInterrupt:
        fit(folder / "stopped", **settings)
        fit(folder / "whole", **settings)
        return weights(folder / "stopped") == weights(folder / "whole")
    raise AssertionError("nothing was evaluated, so nothing stopped the run")


def weights(folder) -> bytes:
    return (folder / "encoder.safetensors").read_bytes()

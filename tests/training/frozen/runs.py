"""Frozen runs small enough for a test."""

from __future__ import annotations

import maskcon
from maskcon.config.settings import Machine
from maskcon.training.callbacks import Callback
from maskcon.training.frozen.cache import FEATURES, features_folder
from tests.miniature import TINY, miniature

OFTEN = Machine(checkpoint_every_seconds=0, device="cpu")
SMALL = {
    **TINY,
    "freeze": True,
    "backbone": "resnet6",
    "image_size": 16,
    "key_view": "embedded-weak",
}


def fit(folder, weights, *, data=None, method="maskcon", callback=None, machine=OFTEN, **changes):
    return maskcon.fit(
        data if data is not None else miniature(),
        method=method,
        out=folder,
        settings={**SMALL, "weights": str(weights), **changes},
        machine=machine,
        callback=callback,
    )


def cached() -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in features_folder().rglob(FEATURES)}


class Told(Callback):
    def __init__(self) -> None:
        self.messages: list[str] = []
        self.extracted: list[tuple[int, int, float]] = []
        self.ended = False

    def on_end(self) -> None:
        self.ended = True

    def on_message(self, text: str) -> None:
        self.messages.append(text)

    def on_extract(self, done: int, total: int, views_per_second: float) -> None:
        self.extracted.append((done, total, views_per_second))

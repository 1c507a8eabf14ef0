"""Events of a run for progress bars, logs, early stopping; `Lines` prints them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import fmean
from typing import Any

from maskcon._utils.text import counted, full_title
from maskcon.config.settings import RunConfig
from maskcon.data import Dataset
from maskcon.methods.registry import method_named
from maskcon.models import has_own_shape


class Callback:
    """No-op callback; override the events you need. Called in the first process only.

    `done` and `total` count images, views or steps. An exception raised in an event ends the run.
    """

    def on_choice(self, line: str) -> None:
        """Receive a setting chosen for this dataset, with its reason."""

    def on_load(self, done: int, total: int) -> None:
        """Receive the number of images read so far."""

    def on_hog(self, done: int, total: int) -> None:
        """Receive the number of images whose HOG features are computed."""

    def on_extract(self, done: int, total: int, views_per_second: float) -> None:
        """Receive the number of views embedded by a frozen backbone so far."""

    def on_begin(self, config: RunConfig, data: Dataset, done: int, total: int) -> None:
        """Receive the settings and the data; training starts at step `done`."""

    def on_step(self, done: int, total: int, images: int, loss: float, seconds: float) -> None:
        """Receive a training step; `loss` is NaN on steps that are not logged."""

    def on_evaluation(self, values: Mapping[str, Any]) -> None:
        """Receive an evaluation: step, epoch, seconds, recall."""

    def on_message(self, text: str) -> None:
        """Receive a note or a warning."""

    def on_end(self) -> None:
        """Release progress bars; also called after an error."""


class Lines(Callback):
    """Print settings and the mean loss of every epoch, for non-interactive terminals."""

    def __init__(self) -> None:
        self._epochs = self._epoch_steps = 1
        self._losses: list[float] = []

    def on_begin(self, config: RunConfig, data: Dataset, done: int, total: int) -> None:  # noqa: ARG002
        self._epochs, self._epoch_steps = config.epochs, total // config.epochs
        self.on_message(begin_line(config, data))

    def on_step(self, done: int, total: int, images: int, loss: float, seconds: float) -> None:  # noqa: ARG002
        if math.isfinite(loss):  # logged
            self._losses.append(loss)
        if done % self._epoch_steps == 0:
            epoch = f"epoch {done // self._epoch_steps:>3} of {self._epochs}"
            self.on_message(f"{epoch}  loss {fmean(self._losses):.3f}  ({seconds:.0f} s)")
            self._losses = []

    def on_message(self, text: str) -> None:
        print(text, flush=True)  # noqa: T201 - on stdout, as scikit-learn's own verbose estimators do


def begin_line(config: RunConfig, data: Dataset) -> str:
    """Describe method, data and settings of a run in one line."""
    method = method_named(config.method)
    values = f"w={config.w:g} " if method.uses_w else ""
    values += f"tau={config.tau:g} " if method.uses_tau else ""
    values += "with neighbours by HOG features " if method.uses_tau and config.uses_hog else ""
    title = full_title(method.title, config.coarse_weight)
    width = "" if has_own_shape(config.backbone) else f" of width {config.width}"
    encoder = (
        f"{config.backbone} {config.frozen_part}, with a trained head"
        if config.freeze
        else f"{config.backbone}{width}"
    )
    return (
        f"{title} {values}on {data.name}: {counted(len(data.train), 'image')}, "
        f"{counted(len(data.coarse_names), 'coarse class', 'coarse classes')}, {config.image_size} px; "
        f"{encoder}, {counted(config.epochs, 'epoch')}, preset {config.preset}, seed {config.seed}"
    )

"""Callback: the events of a run, for progress bars, logs and early stopping."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from maskcon.config.settings import RunConfig
from maskcon.data import Dataset

if TYPE_CHECKING:
    from maskcon.methods.memory_bank import MemoryBank


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

    def on_bank(self, bank: MemoryBank) -> None:
        """Receive the memory bank, filled with first keys, which every step then changes in place."""

    def on_step(self, done: int, total: int, images: int, loss: float, seconds: float) -> None:
        """Receive a training step; `loss` is NaN on steps that are not logged."""

    def on_evaluation(self, values: Mapping[str, Any]) -> None:
        """Receive an evaluation: step, epoch, seconds, recall."""

    def on_message(self, text: str) -> None:
        """Receive a note or a warning."""

    def on_end(self) -> None:
        """Release progress bars; also called after an error."""

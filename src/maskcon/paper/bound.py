"""d_z of theorem 1 during a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from maskcon._utils.errors import DataError
from maskcon.config.settings import RunConfig
from maskcon.data import Dataset, ImageSet
from maskcon.methods.bound import Recipe, SampleLabels, bank_distances
from maskcon.methods.memory_bank import MemoryBank
from maskcon.training.callbacks import Callback


class BoundTracker(Callback):
    """Compute d_z of theorem 1 at each evaluation of a run; changes no weights.

    `found` maps the step of an evaluation to d_z of the run's method ("run") and of others on the same keys, with the w
    that is set, also while the relation warm-up still holds it down. It stays empty for a method without relations.

        tracker = BoundTracker()
        maskcon.fit("embedded", method="maskcon", announce=tracker)
        tracker.found
    """

    def __init__(self) -> None:
        self.found: dict[int, dict[str, float]] = {}
        self._bank: MemoryBank | None = None

    def on_begin(self, config: RunConfig, data: Dataset, done: int, total: int) -> None:  # noqa: ARG002
        if data.train.fine is None:
            raise DataError(f"d_z compares relations with fine labels, and {data.name} has none")
        self._config, self._train = config, data.train

    def on_bank(self, bank: MemoryBank) -> None:
        self._bank = bank

    def on_evaluation(self, values: Mapping[str, Any]) -> None:
        if self._bank is None:
            return
        config, bank = self._config, self._bank
        names = {"run": config.method} | {name: name for name in ("selfcon", "supcon", "grafit", "maskcon")}
        self.found[values["step"]] = bank_distances(
            {name: Recipe(method, config.w, config.tau) for name, method in names.items()},
            bank.compared,
            bank.index,
            _labels(self._train, bank.index.device),
            exclude_own_keys=config.exclude_own_keys,
        )


def _labels(train: ImageSet, device: torch.device | str = "cpu") -> SampleLabels:
    assert train.fine is not None  # checked before
    parts = (train.index, train.coarse, train.fine)
    return SampleLabels(*(torch.from_numpy(part).to(device) for part in parts))

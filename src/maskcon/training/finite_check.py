"""NaN and Inf on devices that work ahead of us: noticed without making them wait at every step."""

from __future__ import annotations

import torch

from maskcon.config.settings import RunConfig
from maskcon.training.step import READ_AT_ONCE, Place, StepReport, not_finite

LONGEST_WAIT_STEPS = 100  # at most so many steps go unread


class FiniteWatch:
    """Remembers what the latest steps said of themselves, and asks for it when something is read anyway.

    On a CPU `train_step` itself raises before the update. Elsewhere the weights of a bad step live on until `check`,
    which must therefore come before anything is saved or scored.
    """

    def __init__(self, config: RunConfig, device: torch.device) -> None:
        self._config = config
        self._needed = device.type not in READ_AT_ONCE
        self._unread: list[tuple[Place, StepReport]] = []

    def see(self, place: Place, report: StepReport) -> None:
        """Take note of a step; waits for the device only when very many have not been read."""
        if self._needed:
            self._unread.append((place, report))
            if len(self._unread) >= LONGEST_WAIT_STEPS:
                self.check()

    def check(self) -> None:
        """Raise the error of the first bad step since the last check, if there was one."""
        if not self._unread:
            return
        finite = torch.stack([report.finite for _, report in self._unread]).tolist()
        for (place, report), good in zip(self._unread, finite, strict=True):
            if not good:
                raise not_finite(self._config, place, report.loss.item())
        self._unread.clear()

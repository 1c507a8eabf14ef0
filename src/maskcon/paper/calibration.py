"""One short training, timed from the inside; `maskcon.paper.timing` starts as many as will run side by side.

A module of its own because a process is part of what is measured: `python -m maskcon.paper.calibration ORDER`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from maskcon._utils.errors import MaskconError
from maskcon.api import fit
from maskcon.config.settings import Machine
from maskcon.training.callbacks import Announcer

if TYPE_CHECKING:
    from maskcon.config.settings import RunConfig
    from maskcon.data import Dataset


class Clock(Announcer):
    """Notes when things happen."""

    def __init__(self) -> None:
        self.ready_at = 0.0  # the first step may begin
        self.steps: list[tuple[float, int]] = []  # end of each step, its images
        self.scored_at = 0.0
        self.primed_images = 0

    def begin(self, config: RunConfig, data: Dataset, done: int, total: int) -> None:  # noqa: ARG002
        self.ready_at = time.time()
        self.primed_images = min(config.bank_size, len(data.train)) if config.prime_bank else 0

    def on_step(self, done: int, total: int, images: int, loss: float, seconds: float) -> None:  # noqa: ARG002
        self.steps.append((time.time(), images))

    def on_evaluation(self, values: Mapping[str, Any]) -> None:  # noqa: ARG002
        self.scored_at = time.time()

    def image_seconds(self, warm_steps: int) -> float:
        """Seconds an image of a training step, after the first few. At least one step is counted."""
        counted = self.steps[min(warm_steps, max(0, len(self.steps) - 2)) :]
        if len(counted) < 2:
            return (counted[-1][0] - self.ready_at) / counted[-1][1]
        return fmean((after - before) / images for (before, _), (after, images) in pairwise(counted))


def measured(order: Mapping[str, Any]) -> dict[str, float]:
    """Train as ordered, with contrast and then without; seconds by kind, and moments for the outside to compare."""
    warm_steps = order["warm_steps"]
    machine = Machine(**order["machine"])

    def timed(method: str) -> tuple[Clock, float]:
        clock = Clock()
        fit(
            order["source"],
            method=method,
            preset=order["preset"],
            settings=order["settings"],
            out=Path(order["folder"]) / method,
            machine=machine,
            announce=clock,
        )
        return clock, time.time()

    contrast, ended = timed("maskcon")
    classify, _ = timed("supce")
    each = contrast.image_seconds(warm_steps)
    first_end, first_images = contrast.steps[0]
    priming = max(0.0, first_end - contrast.ready_at - each * first_images)
    return {
        "ready_at": contrast.ready_at,
        "key": priming / contrast.primed_images if contrast.primed_images else 0.0,
        "contrast": each,
        "classify": classify.image_seconds(warm_steps),
        "evaluation": contrast.scored_at - contrast.steps[-1][0],
        "end": ended - contrast.scored_at,
        "done_at": time.time(),
    }


def main() -> int:
    try:
        found = measured(json.loads(sys.argv[1]))
    except MaskconError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Learning rate and relation weight as functions of the step."""

from __future__ import annotations

import math
from typing import Literal

Schedule = Literal["cosine", "linear", "constant"]


def learning_rate(
    step: int,
    *,
    peak: float,
    total_steps: int,
    warmup_steps: int = 0,
    schedule: Schedule = "cosine",
) -> float:
    """Rate of step 0, 1, ...: up from 0 in a straight line, then a half cosine (or a line) down to 0 at the end.

    >>> [round(learning_rate(s, peak=1.0, total_steps=4), 3) for s in range(4)]
    [1.0, 0.854, 0.5, 0.146]
    >>> [learning_rate(s, peak=1.0, total_steps=4, schedule="linear") for s in range(4)]
    [1.0, 0.75, 0.5, 0.25]
    """
    if step < warmup_steps:
        return peak * step / warmup_steps
    if schedule == "constant":
        return peak
    done = (step - warmup_steps) / max(1, total_steps - warmup_steps)
    if schedule == "linear":
        return peak * (1 - min(1.0, done))
    return peak * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


def ramped(step: int, *, value: float, warmup_steps: int) -> float:
    """A value that rises from 0 in a straight line over `warmup_steps` and then stays.

    >>> [ramped(s, value=1.0, warmup_steps=4) for s in (0, 2, 4, 9)]
    [0.0, 0.5, 1.0, 1.0]
    """
    return value if step >= warmup_steps else value * step / warmup_steps

"""Random draws, batches, learning rate and relation weight of a step.

Randomness is stateless: every random choice follows from (seed, epoch, step, purpose) alone. So a resumed run, or one
over another number of processes, draws the same numbers, and a checkpoint needs no generator state.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from typing import Literal

import torch
from torch import Tensor

Schedule = Literal["cosine", "linear"]
SMALLEST_SHARE = 2  # BatchNorm in training mode needs two values per channel


def generator(seed: int, purpose: str, epoch: int = 0, step: int = 0) -> torch.Generator:
    """Return a CPU generator for one purpose at one place of a run.

    >>> a, b = (torch.rand(1, generator=generator(0, "crop", step=7)) for _ in range(2))
    >>> bool(a == b)
    True
    """
    name = f"{seed}/{epoch}/{step}/{purpose}".encode()
    number = int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little")
    return torch.Generator().manual_seed(number >> 1)  # manual_seed takes 63 bits on every platform


def uniforms(rows: int, draws: int, seed: int, purpose: str, epoch: int = 0, step: int = 0) -> Tensor:
    """Draw uniform numbers in [0, 1), float32 ``[rows, draws]``.

    rows: samples of the GLOBAL batch, not of a process's share.
    """
    return torch.rand(rows, draws, generator=generator(seed, purpose, epoch, step))


def epoch_batches(
    count: int, batch_size: int, *, seed: int, epoch: int, drop_last: bool = False, processes: int = 1
) -> list[Tensor]:
    """Draw the global batches of an epoch: every row exactly once unless `drop_last`.

    A last batch too short for every process to get `SMALLEST_SHARE` rows joins the one before it.

    >>> [len(batch) for batch in epoch_batches(10, 4, seed=0, epoch=0)]
    [4, 4, 2]
    >>> [len(batch) for batch in epoch_batches(9, 4, seed=0, epoch=0)]
    [4, 5]
    """
    order = torch.randperm(count, generator=generator(seed, "order", epoch))
    batches = list(torch.split(order, batch_size))
    short = len(batches[-1]) < batch_size
    if len(batches) > 1 and short:
        if drop_last:
            batches.pop()
        elif len(batches[-1]) < SMALLEST_SHARE * processes:
            last = batches.pop()
            batches[-1] = torch.cat([batches[-1], last])
    return batches


def steps_in_epoch(count: int, batch_size: int, *, drop_last: bool = False, processes: int = 1) -> int:
    """Return the length of `epoch_batches` without drawing them."""
    whole, rest = divmod(count, batch_size)
    joins = rest < SMALLEST_SHARE * processes
    return max(1, whole + (0 if rest == 0 or drop_last or (joins and whole) else 1))


def share_bounds(count: int, processes: int) -> list[tuple[int, int]]:
    """Return start and end of each process's share; lengths differ by at most one.

    >>> share_bounds(10, 4)
    [(0, 3), (3, 6), (6, 8), (8, 10)]
    """
    base, extra = divmod(count, processes)
    starts = [rank * base + min(rank, extra) for rank in range(processes + 1)]
    return list(itertools.pairwise(starts))


def learning_rate(
    step: int,
    *,
    peak: float,
    total_steps: int,
    warmup_steps: int = 0,
    schedule: Schedule = "cosine",
) -> float:
    """Return the learning rate of a step: linear warm-up from 0, then down to 0.

    schedule: the fall is half a cosine ("cosine") or a straight line ("linear").

    >>> [round(learning_rate(s, peak=1.0, total_steps=4), 3) for s in range(4)]
    [1.0, 0.854, 0.5, 0.146]
    >>> [learning_rate(s, peak=1.0, total_steps=4, schedule="linear") for s in range(4)]
    [1.0, 0.75, 0.5, 0.25]
    """
    if step < warmup_steps:
        return peak * step / warmup_steps
    done = (step - warmup_steps) / max(1, total_steps - warmup_steps)
    if schedule == "linear":
        return peak * (1 - min(1.0, done))
    return peak * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


def ramped(step: int, *, value: float, warmup_steps: int) -> float:
    """Return a value that rises linearly from 0 over `warmup_steps` and then stays.

    >>> [ramped(s, value=1.0, warmup_steps=4) for s in (0, 2, 4, 9)]
    [0.0, 0.5, 1.0, 1.0]
    """
    return value if step >= warmup_steps else value * step / warmup_steps

"""Batches of an epoch, and the share of each process."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from maskcon.training.randomness import generator

SMALLEST_SHARE = 2  # BatchNorm in training mode needs two values a channel


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
    """Length of `epoch_batches` without drawing it."""
    whole, rest = divmod(count, batch_size)
    joins = rest < SMALLEST_SHARE * processes
    return max(1, whole + (0 if rest == 0 or drop_last or (joins and whole) else 1))


def share_bounds(count: int, processes: int) -> list[tuple[int, int]]:
    """Start and end of each process's stretch of a global batch; lengths differ by at most one.

    >>> share_bounds(10, 4)
    [(0, 3), (3, 6), (6, 8), (8, 10)]
    """
    base, extra = divmod(count, processes)
    starts = [rank * base + min(rank, extra) for rank in range(processes + 1)]
    return list(itertools.pairwise(starts))

"""The rows `step_overhead` and `step_vs_plain`: a training step against its bare passes, and against plain PyTorch.

All are timed in the same turns, on one thread. The plain step has a process of its own: a run changes how its process
keeps freed memory, which would speed up the plain step too.
"""

from __future__ import annotations

from functools import cache

import torch

from . import subjects
from .figures import Row
from .measure import ON_ONE_THREAD, Apart, Effort, Turns, Work, in_turns
from .plain import PlainStep, PlainTurn, PlainViews, ReadyPair
from .subjects import Subject

QUICK = {"batch_size": 16, "bank_size": 512}


def step_overhead(effort: Effort) -> Row:
    """Whole step over the passes of query and key encoder alone; 1 is ideal."""
    row: Row = {}
    for name in ("resnet18", "cpu"):
        turns, batch = _timed(name, effort)
        row[name] = turns.ratio("ours", "bare")
        if name == "cpu":
            row["cpu_ready_views"] = turns.ratio("ours_ready", "bare")
        row[f"{name}_images_per_second"] = batch / turns.median("ours")
        row[f"{name}_seconds"] = turns.median("ours")
    return row


def step_vs_plain(effort: Effort) -> Row:
    """Seconds of a plain PyTorch step over ours; above 1 ours is faster."""
    row: Row = {}
    for name in ("resnet18", "cpu"):
        turns, batch = _timed(name, effort)
        row[name] = turns.ratio("plain", "ours")
        if name == "cpu":
            row["cpu_same_views"] = turns.ratio("plain_ready", "ours_ready")
        row[f"{name}_plain_images_per_second"] = batch / turns.median("plain")
    return row


@cache
def _timed(name: str, effort: Effort) -> tuple[Turns, int]:
    """Time each piece once for both rows; return the turns and the batch size.

    Views are a hundredth of a ResNet-18 step, so ready views are not measured there.
    """
    changes = QUICK if effort.quick else {}
    threads = torch.get_num_threads()
    try:
        subject = subjects.resnet18(**changes) if name == "resnet18" else subjects.cpu(**changes)
        large = name == "resnet18"
        turns = time_steps(
            subject, effort.turns(5 if large else 25), warm_up=1 if large else 3, ready_views=not large
        )
        return turns, len(subject.rows)
    finally:
        torch.set_num_threads(threads)


def time_steps(subject: Subject, turns: int, *, warm_up: int, ready_views: bool = True) -> Turns:
    """Time `ours` and `plain`, which make views, `..._ready`, which are given them, and `bare` passes."""
    ready = subject.ready_views()
    plain, make = PlainStep.like(subject), PlainViews.like(subject)
    labels, index = subject.data.labels[subject.rows], subject.data.index[subject.rows]
    work: dict[str, Work] = {"ours": subject.step, "bare": subject.bare_passes(ready)}
    plain_work: dict[str, Work] = {"plain": PlainTurn(plain, make, labels, index)}
    if ready_views:
        work["ours_ready"] = subject.with_views(ready, ready).step
        plain_work["plain_ready"] = PlainTurn(plain, ReadyPair(ready.contiguous()), labels, index)
    with Apart(plain_work) as apart:
        return in_turns(
            work,
            turns,
            apart={name: apart.piece(name) for name in plain_work},
            clock=ON_ONE_THREAD,
            warm_up=warm_up,
        )

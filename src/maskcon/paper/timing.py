"""Estimate how long a plan takes on this machine: time a few steps of the same network, then extrapolate.

A measurement runs in processes of its own, because starting a process is part of what is measured:
`python -m maskcon.paper.timing ORDER`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from maskcon._utils.errors import MaskconError, UsageError
from maskcon.api import fit
from maskcon.config.settings import Machine
from maskcon.paper.runs import PlannedRun
from maskcon.training.budget import Pace, run_seconds
from maskcon.training.callbacks import Callback
from maskcon.training.checkpoint import newest_step
from maskcon.training.comparison import POLL_SECONDS
from maskcon.training.journal import read_ends
from maskcon.training.run_folder import CHECKPOINTS, JOURNAL
from maskcon.training.signals import Interrupted, StopRequest

if TYPE_CHECKING:
    from maskcon.config.settings import RunConfig
    from maskcon.data import Dataset


STEPS = 12  # measured per kind of step
LOOK_SECONDS = 0.05  # between two looks at whether a measurement has ended
WARM_STEPS = 2  # left out: caches fill, memory is taken


class Clock(Callback):
    """Record when events happen."""

    def __init__(self) -> None:
        self.ready_at = 0.0  # the first step may begin
        self.steps: list[tuple[float, int]] = []  # end of each step, its images
        self.scored_at = 0.0
        self.primed_images = 0

    def on_begin(self, config: RunConfig, data: Dataset, done: int, total: int) -> None:  # noqa: ARG002
        self.ready_at = time.time()
        self.primed_images = min(config.bank_size, len(data.train))

    def on_step(self, done: int, total: int, images: int, loss: float, seconds: float) -> None:  # noqa: ARG002
        self.steps.append((time.time(), images))

    def on_evaluation(self, values: Mapping[str, Any]) -> None:  # noqa: ARG002
        self.scored_at = time.time()

    def image_seconds(self, warm_steps: int) -> float:
        """Average seconds per image of a training step, after the first few. At least one step is counted."""
        counted = self.steps[min(warm_steps, max(0, len(self.steps) - 2)) :]
        if len(counted) < 2:
            return (counted[-1][0] - self.ready_at) / counted[-1][1]
        return fmean((after - before) / images for (before, _), (after, images) in pairwise(counted))


def measured(order: Mapping[str, Any]) -> dict[str, float]:
    """Train with and then without contrast; returns seconds by kind, and times for the parent process."""
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


def makespan(seconds: Sequence[float], at_once: int) -> float:
    """Compute when the last job ends if each starts, in order, as soon as one of `at_once` places is free.

    >>> makespan([3, 1, 1, 1], 2)
    3.0
    """
    free = [0.0] * at_once
    for duration in seconds:
        place = free.index(min(free))
        free[place] += duration
    return max(free)


def expected_seconds(
    runs: Sequence[PlannedRun], images: Mapping[Path, int], paces: Mapping[str, Pace], *, at_once: int
) -> float:
    """Estimate the wall time of `carry_out` over these runs. An interrupted run counts for what is left of it.

    Args:
        runs: those to train, in the order in which they will start.
        images: how many images each trains on, by folder.
        paces: what was measured, by the dataset used.
        at_once: processes side by side.
    """
    durations = []
    for run in runs:
        left = run_seconds(paces[run.ground.source], run.config, images[run.folder], _done(run.folder))
        # A free place is noticed half a poll late on average.
        durations.append(left + POLL_SECONDS / 2)
    return makespan(durations, at_once)


def _done(folder: Path) -> float:
    """Return the share of a run that its newest checkpoint holds."""
    begun = [event for event in read_ends(folder / JOURNAL) if event["kind"] == "start"]
    return min(1.0, newest_step(folder / CHECKPOINTS) / begun[0]["total_steps"]) if begun else 0.0


def measure(run: PlannedRun, machine: Machine, *, at_once: int) -> Pace:
    """Time short trainings with the data, network and settings of `run`, `at_once` side by side."""
    with tempfile.TemporaryDirectory(prefix="maskcon-timing-") as folder:
        environment = dict(os.environ)
        if machine.threads is not None:
            environment["OMP_NUM_THREADS"] = str(machine.threads)
        processes: list[subprocess.Popen[bytes]] = []
        begun = time.time()
        with StopRequest() as stop:
            try:
                for number in range(at_once):
                    order = _order(run, machine, Path(folder) / str(number))
                    command = [sys.executable, "-m", "maskcon.paper.timing", order]
                    processes.append(
                        subprocess.Popen(
                            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
                        )
                    )
                ended = _ends(processes, stop)
            finally:
                for process in processes:
                    if process.poll() is None:
                        process.kill()
                    process.wait()
        found = [_pace(process, begun, at) for process, at in zip(processes, ended, strict=True)]
    return Pace(**{field.name: fmean(getattr(pace, field.name) for pace in found) for field in fields(Pace)})


def _ends(processes: Sequence[subprocess.Popen[bytes]], stop: StopRequest) -> list[float]:
    """Wait for all processes; returns when each ended. Their one line of output fits into the pipe."""
    ended: dict[int, float] = {}
    while len(ended) < len(processes):
        if stop.signal_number is not None:
            raise Interrupted("stopped while measuring; no run was started", stop.signal_number)
        time.sleep(LOOK_SECONDS)
        for process in processes:
            if process.pid not in ended and process.poll() is not None:
                ended[process.pid] = time.time()
    return [ended[process.pid] for process in processes]


def _order(run: PlannedRun, machine: Machine, folder: Path) -> str:
    """Return the arguments of a measuring process, as JSON."""
    images = STEPS * run.config.batch_size
    own = {key: value for key, value in run.settings.items() if key not in ("w", "tau")}
    short = {
        "epochs": 1,
        "train_limit": min(images, run.config.train_limit or images),
        "eval_every_epochs": 0,
        "evaluate_on": "test",
    }
    return json.dumps(
        {
            "source": run.ground.source,
            "preset": run.ground.preset,
            "settings": {**own, **short},
            "machine": machine.model_dump(),
            "folder": str(folder),
            "warm_steps": WARM_STEPS,
        }
    )


def _pace(process: subprocess.Popen[bytes], begun: float, gone: float) -> Pace:
    """Read what one process measured, and add its start and exit as seen from outside."""
    output, errors = process.communicate()
    if process.returncode != 0:
        lines = errors.decode(errors="replace").strip().splitlines()
        kind = UsageError if process.returncode == UsageError.exit_code else MaskconError
        raise kind(lines[-1] if lines else f"measuring this machine failed (exit code {process.returncode})")
    measures = json.loads(output.splitlines()[-1])
    return Pace(
        start=measures["ready_at"] - begun,
        key=measures["key"],
        contrast=measures["contrast"],
        classify=measures["classify"],
        evaluation=measures["evaluation"],
        end=measures["end"] + max(0.0, gone - measures["done_at"]),
    )


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

"""How long a plan will take on this machine: a few steps of the very net are measured, the rest is arithmetic."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from statistics import fmean

from maskcon._utils.errors import MaskconError, UsageError
from maskcon.config.settings import Machine
from maskcon.paper.runs import PlannedRun
from maskcon.training.checkpoint import newest_step
from maskcon.training.comparison import POLL_SECONDS
from maskcon.training.journal import read_ends
from maskcon.training.pace import Pace, run_seconds
from maskcon.training.run_folder import CHECKPOINTS, JOURNAL
from maskcon.training.signals import Interrupted, StopRequest

STEPS = 12  # measured a kind of step
LOOK_SECONDS = 0.05  # between two looks at whether a measurement has ended
WARM_STEPS = 2  # left out: caches fill, memory is taken


def makespan(seconds: Sequence[float], at_once: int) -> float:
    """When the last of these jobs ends if each starts, in order, as soon as one of `at_once` places is free.

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
    """Expected wall time of `carry_out` over these runs. A run that was stopped counts for what is left of it.

    Args:
        runs: those to train, in the order in which they will start.
        images: how many images each trains on, by folder.
        paces: what was measured, by the data set used.
        at_once: processes side by side.
    """
    durations = []
    for run in runs:
        left = run_seconds(paces[run.ground.source], run.config, images[run.folder], _done(run.folder))
        # A free place is noticed at the next look: half a poll late on average.
        durations.append(left + POLL_SECONDS / 2)
    return makespan(durations, at_once)


def _done(folder: Path) -> float:
    """Share of a run that its newest checkpoint holds; what the journal says beyond it was lost by a kill."""
    begun = [event for event in read_ends(folder / JOURNAL) if event["kind"] == "start"]
    return min(1.0, newest_step(folder / CHECKPOINTS) / begun[0]["total_steps"]) if begun else 0.0


def measure(run: PlannedRun, machine: Machine, *, at_once: int) -> Pace:
    """Measure this machine on the data, net and settings of `run`: one short training a place, side by side."""
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
                    command = [sys.executable, "-m", "maskcon.paper.calibration", order]
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
    """When each process ended. What they say is one line, which a pipe holds until it is read."""
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
    """What `maskcon.paper.calibration` is to do, as JSON."""
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
    """What one process measured, with what only the outside sees: its start and its exit."""
    output, errors = process.communicate()
    if process.returncode != 0:
        lines = errors.decode(errors="replace").strip().splitlines()
        kind = UsageError if process.returncode == UsageError.exit_code else MaskconError
        raise kind(lines[-1] if lines else f"measuring this machine failed (exit code {process.returncode})")
    told = json.loads(output.splitlines()[-1])
    return Pace(
        start=told["ready_at"] - begun,
        key=told["key"],
        contrast=told["contrast"],
        classify=told["classify"],
        evaluation=told["evaluation"],
        end=told["end"] + max(0.0, gone - told["done_at"]),
    )


def spoken(seconds: float) -> str:
    """A duration as one would say it.

    >>> [spoken(value) for value in (42.4, 500, 5000, 400_000)]
    ['42 seconds', '8.3 minutes', '83.3 minutes', '4.6 days']
    """
    for unit, length, limit in (("seconds", 1, 90), ("minutes", 60, 7_200), ("hours", 3_600, 172_800)):
        if seconds < limit:
            return f"{seconds / length:.{0 if length == 1 else 1}f} {unit}"
    return f"{seconds / 86_400:.1f} days"

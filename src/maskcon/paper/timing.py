"""Estimate how long a plan takes on this machine: time a few steps of the same network, then extrapolate.

A measurement runs in as many processes as will be training side by side: `python -m maskcon.paper.timing`.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from maskcon._utils.errors import MaskconError
from maskcon.config.resolution import resolve
from maskcon.config.settings import Machine
from maskcon.paper.runs import PlannedRun
from maskcon.training.budget import Pace, measure_pace, run_seconds
from maskcon.training.callbacks import Callback
from maskcon.training.checkpoint import newest_step
from maskcon.training.comparison import POLL_SECONDS, Job, run_jobs
from maskcon.training.distributed import start
from maskcon.training.journal import read_ends
from maskcon.training.run_folder import CHECKPOINTS, JOURNAL, RESULT
from maskcon.training.setup import assemble, load_dataset, load_views, settle, view_engine


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
    """Time a few steps with the data, network and settings of `run`, in `at_once` processes side by side."""
    with tempfile.TemporaryDirectory(prefix="maskcon-timing-") as folder:
        own = {key: value for key, value in run.settings.items() if key not in ("w", "tau")}
        order = json.dumps(
            {
                "source": run.ground.source,
                "preset": run.ground.preset,
                "settings": own,
                "machine": machine.model_dump(),
                "begun": time.time(),
            }
        )
        program = ("-m", "maskcon.paper.timing")
        jobs = [
            Job(f"measuring {run.label}", Path(folder) / str(n), [order], program) for n in range(at_once)
        ]
        run_jobs(jobs, at_once=at_once, threads=machine.threads, watch=lambda _: None)
        found = [Pace(**json.loads((job.folder / RESULT).read_text(encoding="utf-8"))) for job in jobs]
    return Pace(**{field.name: fmean(getattr(pace, field.name) for pace in found) for field in fields(Pace)})


def _measured(order: Mapping[str, Any]) -> Pace:
    """Measure training with and without contrast in this process."""
    source, machine = order["source"], Machine(**order["machine"])
    begun = order["begun"]
    paces = []
    for method in ("maskcon", "supce"):
        config = resolve(source, method=method, preset=order["preset"], overrides=order["settings"]).config
        data = load_dataset(source, config, machine, Callback())
        processes = start(
            device=machine.device, devices=1, precision=config.precision, threads=machine.threads
        )
        config = settle(config, data)
        engine = view_engine(config)
        load_views(config, engine, processes.device, lambda _: None)
        assembly = assemble(config, data, processes, engine, download=machine.download)
        assembly.prepare(Callback())
        begun_after = time.time() - begun
        paces.append(replace(measure_pace(assembly), start=begun_after))
        assembly.close()
    return replace(paces[0], classify=paces[1].classify)


def main() -> int:
    """Measure as ordered by the command line of a `Job`, and write the pace as its result."""
    _, order, _, folder, *_ = sys.argv[1:]
    try:
        pace = _measured(json.loads(order))
    except MaskconError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    Path(folder).mkdir()
    (Path(folder) / RESULT).write_text(json.dumps(asdict(pace)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

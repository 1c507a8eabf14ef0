"""The row `scaling`: images a second of one process and of two, each on one thread, with the same batch a process."""

from __future__ import annotations

import statistics
import time

from maskcon._utils.threads import usable_cores
from maskcon.bench import subjects
from maskcon.bench.figures import Row
from maskcon.bench.fresh import in_fresh_process
from maskcon.bench.measure import Effort

BATCH_A_PROCESS = (
    128  # kept: a larger machine is given more images a step, not the same ones in smaller parts
)
STEPS, QUICK_STEPS = 40, 5


def scaling(effort: Effort) -> Row:
    """Rate of two processes over twice that of one; 1 is the most. The preset `cpu` on the embedded set."""
    if usable_cores() < 2:
        return {"efficiency_2": None, "note": "two processes need two cores, and this machine gives one"}
    steps = QUICK_STEPS if effort.quick else STEPS
    rates: dict[int, list[float]] = {1: [], 2: []}
    for turn in range(1 if effort.quick else 3):
        for devices in (1, 2) if turn % 2 == 0 else (2, 1):
            rates[devices].append(
                in_fresh_process(f"{__name__}:images_per_second", devices=devices, steps=steps)
            )
    ratios = [two / (2 * one) for one, two in zip(rates[1], rates[2], strict=True)]
    return {
        "efficiency_2": statistics.median(ratios),
        "images_per_second_1": statistics.median(rates[1]),
        "images_per_second_2": statistics.median(rates[2]),
        "batch_a_process": BATCH_A_PROCESS,
    }


def images_per_second(devices: int, steps: int) -> float | None:
    """Run by a fresh process, which starts its peers: the rate of all together, told by the first."""
    subject = subjects.cpu(devices=devices, batch_size=BATCH_A_PROCESS * devices)
    processes = subject.learner.processes
    for _ in range(3):
        subject.step()
    processes.any(False)  # all begin together
    begin = time.perf_counter()
    for _ in range(steps):
        subject.step()
    processes.any(False)
    seconds = time.perf_counter() - begin
    rate = len(subject.rows) * steps / seconds if processes.is_first else None
    del subject
    processes.close()
    return rate

"""Rows that start whole processes: `startup`, `busy_core` and `scaling`."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from maskcon._utils.errors import MaskconError
from maskcon._utils.threads import usable_cores
from maskcon.training.run_folder import JOURNAL, read_result

from . import subjects
from .figures import Row
from .measure import Effort, in_fresh_process, in_turns

FIRST_STEP = ("--epochs", "1", "--set", "train_limit=128", "--set", "test_limit=128", "--device", "cpu")
TIMEOUT_SECONDS = 300.0
# The busy process ends when its parent does, even if the parent is killed.
BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"
BUSY_IMAGES, QUICK_BUSY_IMAGES = 4000, 1000
BATCH_PER_PROCESS = 128  # constant per process: more processes take more images per step
STEPS, QUICK_STEPS = 40, 5


def startup(effort: Effort) -> Row:
    """Time `maskcon --help`, the import (over that of torch) and the first training step; lower is better."""
    turns = in_turns(
        {
            "help": lambda: _run("-m", "maskcon", "--help"),
            "nothing": lambda: _run("-c", "pass"),
            "maskcon": lambda: _run("-c", "import maskcon"),
            "torch": lambda: _run("-c", "import torch"),
        },
        effort.turns(5),
    )
    nothing = turns.median("nothing")  # the interpreter itself
    package, torch = (max(turns.median(name) - nothing, 0.0) for name in ("maskcon", "torch"))
    return {
        "help_seconds": turns.median("help"),
        "import_ratio_to_torch": package / torch,
        "import_seconds": package,
        "import_torch_seconds": torch,
        "first_step_seconds": first_step_seconds(),
    }


def _run(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)


def first_step_seconds() -> float:
    """Seconds from the command `maskcon train embedded` to the first step in the journal, with 128 images."""
    with tempfile.TemporaryDirectory(prefix="maskcon-bench-") as scratch:
        journal = Path(scratch, "run", JOURNAL)
        command = [sys.executable, "-m", "maskcon", "train", "embedded", *FIRST_STEP, "--out", "run"]
        begin = time.perf_counter()
        with subprocess.Popen(
            command, cwd=scratch, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            while not (journal.is_file() and '"step"' in journal.read_text(encoding="utf-8")):
                if process.poll() is not None and not journal.is_file():
                    raise MaskconError(
                        f"`{' '.join(command[1:])}` ended with {process.returncode} before a step"
                    )
                if time.perf_counter() - begin > TIMEOUT_SECONDS:
                    process.kill()
                    raise MaskconError(f"no training step within {TIMEOUT_SECONDS:.0f} seconds")
                time.sleep(0.01)
            seconds = time.perf_counter() - begin
            process.wait()
    return seconds


def busy_core(effort: Effort) -> Row:
    """Training seconds beside a process that keeps one core busy, over those alone; lower is better."""
    if usable_cores() < 2:
        return {"ratio": None, "note": "needs two cores; a single core can at best be shared evenly"}
    images = QUICK_BUSY_IMAGES if effort.quick else BUSY_IMAGES

    def beside(calls: int) -> float:
        with _busy_process():
            return _train_seconds(images, calls)

    alone_and_beside = {"alone": lambda calls: _train_seconds(images, calls), "beside": beside}
    turns = in_turns({}, effort.turns(3), apart=alone_and_beside, warm_up=0)
    return {
        "ratio": turns.ratio("beside", "alone"),
        "alone_seconds": turns.median("alone"),
        "beside_seconds": turns.median("beside"),
        "cores": usable_cores(),
    }


@contextmanager
def _busy_process() -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _train_seconds(images: int, calls: int) -> float:
    """Mean seconds of `calls` runs of two epochs on the embedded set, loading not counted."""
    settings = ("--epochs", "2", "--set", f"train_limit={images}", "--device", "cpu")
    seconds = 0.0
    for _ in range(calls):
        with tempfile.TemporaryDirectory(prefix="maskcon-bench-") as scratch:
            folder = Path(scratch, "run")
            command = [sys.executable, "-m", "maskcon", "train", "embedded", *settings, "--out", str(folder)]
            subprocess.run(command, check=True, capture_output=True)
            seconds += float(read_result(folder)["seconds"])
    return seconds / calls


def scaling(effort: Effort) -> Row:
    """Rate of two processes over twice that of one, preset `cpu`, one thread per process; 1 is ideal."""
    if usable_cores() < 2:
        return {"efficiency_2": None, "note": "two processes need two cores, and this machine has one"}
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
        "batch_a_process": BATCH_PER_PROCESS,
    }


def images_per_second(devices: int, steps: int) -> float | None:
    """Rate of all processes together, returned by the first. Runs in a fresh process, which starts its peers."""
    subject = subjects.cpu(devices=devices, batch_size=BATCH_PER_PROCESS * devices)
    processes = subject.learner.processes
    for _ in range(3):
        subject.step()
    processes.any(False)  # a barrier
    begin = time.perf_counter()
    for _ in range(steps):
        subject.step()
    processes.any(False)
    seconds = time.perf_counter() - begin
    rate = len(subject.rows) * steps / seconds if processes.is_first else None
    del subject
    processes.close()
    return rate

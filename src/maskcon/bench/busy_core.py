"""The row `busy_core`: a short training beside a program that keeps one core busy, over the same alone."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from maskcon._utils.threads import usable_cores
from maskcon.bench.figures import Row
from maskcon.bench.measure import Effort, in_turns
from maskcon.training.run_folder import read_result

# It ends with the process that started it, however that ends.
BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"
IMAGES, QUICK_IMAGES = 4000, 1000


def busy_core(effort: Effort) -> Row:
    """Seconds of training, loading not counted, beside a busy process over those alone; lower is better."""
    if usable_cores() < 2:
        return {"ratio": None, "note": "one core is shared evenly at best; this row needs two"}
    images = QUICK_IMAGES if effort.quick else IMAGES

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
    """Mean over so many runs of two epochs of the embedded set, as the command line trains it by default."""
    settings = ("--epochs", "2", "--set", f"train_limit={images}", "--device", "cpu")
    seconds = 0.0
    for _ in range(calls):
        with tempfile.TemporaryDirectory(prefix="maskcon-bench-") as scratch:
            folder = Path(scratch, "run")
            command = [sys.executable, "-m", "maskcon", "train", "embedded", *settings, "--out", str(folder)]
            subprocess.run(command, check=True, capture_output=True)
            seconds += float(read_result(folder)["seconds"])
    return seconds / calls

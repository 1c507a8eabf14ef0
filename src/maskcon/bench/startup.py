"""The row `startup`: what a user waits for before anything happens."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from maskcon._utils.errors import MaskconError
from maskcon.bench.figures import Row
from maskcon.bench.measure import Effort, in_turns
from maskcon.training.run_folder import JOURNAL

FIRST_STEP = ("--epochs", "1", "--set", "train_limit=128", "--set", "test_limit=128", "--device", "cpu")
PATIENCE_SECONDS = 300.0


def startup(effort: Effort) -> Row:
    """Seconds, and the import of the package over that of torch, each in a fresh interpreter; lower is better."""
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
    """From the command `maskcon train embedded` to the first step in the journal, with 128 images."""
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
                if time.perf_counter() - begin > PATIENCE_SECONDS:
                    process.kill()
                    raise MaskconError(f"no training step within {PATIENCE_SECONDS:.0f} seconds")
                time.sleep(0.01)
            seconds = time.perf_counter() - begin
            process.wait()
    return seconds

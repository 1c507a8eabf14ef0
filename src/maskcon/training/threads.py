"""Number of torch threads of a run: given, recorded at its start, or the free cores."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from maskcon._utils.text import counted
from maskcon._utils.threads import free_cores
from maskcon.config.settings import Machine
from maskcon.training.distributed import several_processes, usable_device
from maskcon.training.run_folder import ENVIRONMENT, RESULT


def with_threads(machine: Machine, folder: Path, message: Callable[[str], None]) -> Machine:
    """Fill in the number of threads of a CPU run that does not set it.

    A resumed run keeps its number, since rounding depends on it. A new run takes the free cores, at most as many as
    torch would; OMP_NUM_THREADS and runs of several processes are left alone.
    """
    if machine.threads is not None or several_processes(machine.devices) or (folder / RESULT).is_file():
        return machine
    if usable_device(machine.device) != "cpu":
        return machine
    threads, begun = _threads_now(), _recorded(folder)
    if begun is not None and begun != threads:
        message(
            f"resuming with {counted(begun, 'thread')} as before, for identical results; "
            f"a new run would use {threads} now"
        )
    elif begun is None and threads < torch.get_num_threads():
        message(
            f"other programs keep cores busy: training with {counted(threads, 'thread')} "
            f"of {torch.get_num_threads()}; --threads gives another number"
        )
    return machine.model_copy(update={"threads": begun or threads})


@contextmanager
def threads_of_torch(count: int | None) -> Iterator[None]:
    """Set the number of torch threads inside the block; None changes nothing."""
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if count is not None:
            torch.set_num_threads(before)


def _threads_now() -> int:
    most = torch.get_num_threads()
    if most == 1 or "OMP_NUM_THREADS" in os.environ:
        return most
    return min(most, free_cores())


def _recorded(folder: Path) -> int | None:
    """Threads of the last start of the run; None for a new one, or where that cannot be read."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return max(1, int(json.loads((folder / ENVIRONMENT).read_text(encoding="utf-8"))["threads"]))
    return None

"""Devices, processes and threads of a run.

Several processes behave as one with the same global batch: each has the same bank, keys are gathered in the order of
the batch, and no row is seen twice.
"""

from __future__ import annotations

import gc
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from maskcon._utils.errors import MaskconError, UsageError, unknown
from maskcon._utils.text import counted
from maskcon._utils.threads import free_cores
from maskcon.config.settings import Machine
from maskcon.training.run_folder import RESULT, recorded_environment
from maskcon.training.schedule import share_bounds


class FirstProcessError(MaskconError):
    """The first process failed and says why; this one stops with it."""


@dataclass(frozen=True)
class Processes:
    """This process among its peers. `fabric` is a `lightning_fabric.Fabric`."""

    fabric: Any

    @property
    def rank(self) -> int:
        return int(self.fabric.global_rank)

    @property
    def count(self) -> int:
        return int(self.fabric.world_size)

    @property
    def device(self) -> torch.device:
        device: torch.device = self.fabric.device
        return device

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files and messages."""
        return self.rank == 0

    def share(self, count: int) -> slice:
        """Return this process's part of a global batch of `count` rows."""
        return slice(*share_bounds(count, self.count)[self.rank])

    def gather(self, rows: Tensor, count: int) -> Tensor:
        """Gather the shares of a global batch from all processes: ``[count, ...]``."""
        if self.count == 1:
            return rows
        bounds = share_bounds(count, self.count)
        longest = max(end - start for start, end in bounds)
        padded = rows.new_zeros(longest, *rows.shape[1:])
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in bounds]
        dist.all_gather(parts, padded)
        return torch.cat([part[: end - start] for part, (start, end) in zip(parts, bounds, strict=True)])

    def any(self, flag: bool) -> bool:
        """Return, in every process, whether the flag is set in any of them."""
        if self.count == 1:
            return flag
        votes = torch.tensor([float(flag)], device=self.device)
        dist.all_reduce(votes, op=dist.ReduceOp.MAX)
        return bool(votes.item())

    def mean(self, value: Tensor) -> Tensor:
        """Return the mean of a number over the processes."""
        if self.count == 1:
            return value
        total = value.detach().clone()
        dist.all_reduce(total)
        return total / self.count

    def copy_first(self, value: Tensor) -> None:
        """Overwrite a tensor with the one of the first process."""
        if self.count > 1:
            dist.broadcast(value, src=0)

    def in_first(self, work: Callable[[], None]) -> None:
        """Do the work in the first process only. The others wait, and stop if it fails."""
        failure: MaskconError | None = None
        if self.is_first:
            try:
                work()
            except MaskconError as error:
                failure = error
        if self.any(failure is not None):
            raise failure or FirstProcessError(f"process {self.rank} stopped with the first one")

    def close(self) -> None:
        """Leave the process group, after the last collective call.

        No reference to a wrapped network may be left.

        A process that ends without this may be aborted: threads of the connection still hold the last tensors sent.
        Networks go first: one that outlived the connection would wait for these threads while it holds Python's
        global lock, which they need to end.
        """
        if self.count > 1 and dist.is_initialized():
            gc.collect()
            dist.destroy_process_group()


def start(*, device: str, devices: int, precision: str, threads: int | None = None) -> Processes:
    """Start this process, and its peers if there are several.

    Under `torchrun` or `fabric run` the processes exist already, and the launcher decides their number.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    accelerator = usable_device(device)
    if accelerator == "cpu" and precision == "16-mixed":  # Fabric would take bfloat16 silently
        raise UsageError("precision=16-mixed needs a GPU; on a CPU use precision=bf16-mixed or 32-true")
    # Lightning Fabric is imported here: it is slow to import and only training needs it.
    from lightning_fabric import Fabric

    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", module="lightning_fabric")
    local, nodes = devices, 1
    if "LOCAL_WORLD_SIZE" in os.environ:
        local = int(os.environ["LOCAL_WORLD_SIZE"])
        nodes = int(os.environ["WORLD_SIZE"]) // local
    if accelerator == "cuda" and local > torch.cuda.device_count():
        raise UsageError(f"{local} devices requested, {torch.cuda.device_count()} found; lower --devices")
    several = local * nodes > 1
    fabric = Fabric(
        accelerator=accelerator,
        devices=local,
        num_nodes=nodes,
        strategy="ddp" if several else "auto",
        precision=precision,  # type: ignore[arg-type]
    )
    fabric.launch()
    return Processes(fabric)


def several_processes(devices: int) -> bool:
    """Return whether a run on this number of devices, or by a launcher, has several processes."""
    return devices > 1 or int(os.environ.get("WORLD_SIZE", "1")) > 1


def is_first_process() -> bool:
    """Return `Processes.is_first` before the start, by the variables of launchers."""
    return int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0"))) == 0


def usable_device(name: str) -> str:
    """Return the requested device, for "auto" the best here; raise if not available."""
    here = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return next(kind for kind, available in here.items() if available)
    kind = name.partition(":")[0]  # cuda:1
    if kind not in here:
        raise unknown("device", name, ["auto", *here])
    if not here[kind]:
        raise UsageError(f"device {name!r} is not available here; use --device cpu")
    return name


def with_threads(machine: Machine, folder: Path, message: Callable[[str], None]) -> Machine:
    """Fill in the number of threads of a CPU run that does not set it.

    A resumed run keeps its number, since rounding depends on it. A new run takes the free cores, at most as many as
    torch would; OMP_NUM_THREADS and runs of several processes are left alone.
    """
    if machine.threads is not None or several_processes(machine.devices) or (folder / RESULT).is_file():
        return machine
    if usable_device(machine.device) != "cpu":
        return machine
    threads, earlier = _threads_now(), _recorded_threads(folder)
    if earlier is not None and earlier != threads:
        message(
            f"resuming with {counted(earlier, 'thread')} as before, for identical results; "
            f"a new run would use {threads} now"
        )
    elif earlier is None and threads < torch.get_num_threads():
        message(
            f"other programs keep cores busy: training with {counted(threads, 'thread')} "
            f"of {torch.get_num_threads()}; --threads sets another number"
        )
    return machine.model_copy(update={"threads": earlier or threads})


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


def _recorded_threads(folder: Path) -> int | None:
    """Return the threads of the run's last start; None for a new run."""
    threads = recorded_environment(folder).get("threads")
    return threads if isinstance(threads, int) and threads > 0 else None

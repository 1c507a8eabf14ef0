"""Devices and processes: the only place that knows how many there are and of what kind.

Several processes behave as one with the same global batch: each holds the same bank, keys are shared in the
order of the batch, and no row is seen twice.
"""

from __future__ import annotations

import logging
import os
import warnings
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from maskcon.engine.batches import share_bounds
from maskcon.errors import UsageError


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
        """True in the one process that writes files and speaks."""
        return self.rank == 0

    def share(self, count: int) -> slice:
        """This process's stretch of a global batch of `count` rows."""
        return slice(*share_bounds(count, self.count)[self.rank])

    def gather(self, rows: Tensor, count: int) -> Tensor:
        """All processes' shares of a global batch of `count` rows, in the order of the batch: ``[count, ...]``."""
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
        """Whether the flag is up in any process, so that all of them turn at the same step."""
        if self.count == 1:
            return flag
        votes = torch.tensor([float(flag)], device=self.device)
        dist.all_reduce(votes, op=dist.ReduceOp.MAX)
        return bool(votes.item())

    def mean(self, value: Tensor) -> Tensor:
        """Mean of a number over the processes."""
        if self.count == 1:
            return value
        total = value.detach().clone()
        dist.all_reduce(total)
        return total / self.count

    def barrier(self) -> None:
        if self.count > 1:
            self.fabric.barrier()


def start(*, device: str, devices: int, precision: str, threads: int | None = None) -> Processes:
    """Start this process, and its peers where there are several, on the wanted devices.

    Under `torchrun` (or `fabric run`) the processes exist already and `devices` is theirs to say.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError("device 'cuda' is not available here; use --device cpu, or auto")
    if device == "mps" and not torch.backends.mps.is_available():
        raise UsageError("device 'mps' is not available here; use --device cpu, or auto")
    # Lightning Fabric is imported here: it is slow to import and only training needs it.
    from lightning_fabric import Fabric

    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", module="lightning_fabric")
    accelerator = device if device != "auto" else _best_device()
    local = int(os.environ.get("LOCAL_WORLD_SIZE", devices))
    nodes = max(1, int(os.environ.get("WORLD_SIZE", local)) // local)
    if accelerator == "cuda" and local > torch.cuda.device_count():
        raise UsageError(f"{local} devices asked for, {torch.cuda.device_count()} found; lower --devices")
    several = local * nodes > 1
    fabric = Fabric(
        accelerator=accelerator,
        devices=local,
        num_nodes=nodes,
        strategy="ddp" if several else "auto",
        precision=precision,  # type: ignore[arg-type]
    )
    fabric.launch()
    if accelerator == "cuda":
        torch.set_float32_matmul_precision("high")
    return Processes(fabric)


def _best_device() -> str:
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"

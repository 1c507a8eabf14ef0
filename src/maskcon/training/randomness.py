"""Stateless randomness: every random choice follows from (seed, epoch, step, purpose) alone.

So a resumed run, or one over another number of processes, draws the same numbers, and a checkpoint needs no
generator state.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor


def generator(seed: int, purpose: str, epoch: int = 0, step: int = 0) -> torch.Generator:
    """A CPU generator for one purpose at one place of a run.

    >>> a, b = (torch.rand(1, generator=generator(0, "crop", step=7)) for _ in range(2))
    >>> bool(a == b)
    True
    """
    name = f"{seed}/{epoch}/{step}/{purpose}".encode()
    number = int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little")
    return torch.Generator().manual_seed(number >> 1)  # manual_seed takes 63 bits on every platform


def uniforms(rows: int, draws: int, seed: int, purpose: str, epoch: int = 0, step: int = 0) -> Tensor:
    """A table of numbers in [0, 1), float32 ``[rows, draws]``: a row for each sample of the GLOBAL batch."""
    return torch.rand(rows, draws, generator=generator(seed, purpose, epoch, step))

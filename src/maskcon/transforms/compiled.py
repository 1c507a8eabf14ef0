"""Views by compiled loops: one pass per sample from stored pixels to normalised values. For images on the CPU.

What is done to a sample is decided by the policy's own code, on tables of [B] numbers; the loops only carry it out.
Their views equal those of the tensor code but for rounding; their own bits depend neither on the batch nor on the
number of threads. Importing this imports numba.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskcon.transforms.boxes import Crop, RandomCrop
from maskcon.transforms.buffers import Lender
from maskcon.transforms.kernels import crops, finish, geometry
from maskcon.transforms.operations import Operation
from maskcon.transforms.policies import ViewPolicy, normalise
from maskcon.transforms.programs import Program, program
from maskcon.transforms.resample import Warp

BLOCK_VALUES = 2**17  # of the views made in one go: few enough to stay in the cache from one loop to the next
FEWEST_ROWS = 8  # that are worth a thread


@dataclass(frozen=True)
class CompiledPolicy:
    """A policy whose views are made by compiled loops; called as the policy is, with the same uniforms.

    mean, std: of each channel, to normalise by; by default views stay in [0, 1].
    channels_last: the memory format of the views; their shape is [B, C, size, size] either way.
    Images that are not bytes on the CPU are left to the tensor code. Views are written into memory that earlier ones
    no longer need (see `lending`).

    To make one compiles what the policy needs, for some seconds, or reads it from the cache of an earlier process.
    """

    policy: ViewPolicy
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    channels_last: bool = False
    _lender: Lender = field(default_factory=Lender, repr=False, compare=False)

    def __post_init__(self) -> None:
        nobody = torch.zeros(0, self.policy.draws)
        loops = [step.loop for step in _programs(self.policy.operations, self.policy.shares(nobody), 1)]
        if isinstance(self.policy.crop, RandomCrop):
            loops.append(crops.crop_rows)
        for loop in (geometry.resample_rows, finish.finish_rows, *loops):
            _ = loop.ready  # compiled now, and by one thread

    @property
    def name(self) -> str:
        return self.policy.name

    @property
    def draws(self) -> int:
        return self.policy.draws

    def __call__(self, images: Tensor, uniforms: Tensor, *, size: int, sizes: Tensor | None = None) -> Tensor:
        """images [B, C, H, W], uniforms [B, draws] -> float32 [B, C, size, size]."""
        if images.dtype != torch.uint8 or images.device.type != "cpu":
            return self._by_tensors(images, uniforms, size, sizes)
        heights, widths = self.policy.check(images, uniforms, size, sizes)
        shares = self.policy.shares(uniforms)
        batch, channels = images.shape[:2]
        pixels = images.contiguous().numpy()
        places = _placements(self.policy.crop, heights, widths, uniforms, size)
        turned = np.zeros(batch, bool)
        if self.policy.mirror > 0:
            turned = uniforms.numpy()[:, self.policy.crop.draws] < self.policy.mirror
        kinds, matrices, projective, fill = _warps(self.policy.warp(shares, size), places, size)
        programs = _programs(self.policy.operations, shares, size)
        mean = np.array(self.mean or [0.0] * channels, np.float32)
        inverse = np.array([1 / spread for spread in self.std or [1.0] * channels], np.float32)
        made = self._lender.lend(batch, channels * size * size)
        views = made.numpy()

        block = max(1, BLOCK_VALUES // (channels * size * size))  # rows

        def make(begin: int, end: int) -> None:
            scratch = np.empty((min(block, end - begin), channels, size, size), np.float32)
            for first in range(begin, end, block):
                part = scratch[: end - first]
                geometry.resample_rows(pixels, places, turned, kinds, matrices, projective, fill, first, part)
                for step in programs:
                    step.loop(step.operations, step.amounts, first, part)
                lines = part.reshape(len(part), channels, size * size)
                finish.finish_rows(lines, mean, inverse, self.channels_last, first, views)

        _on_threads(make, batch)
        if self.channels_last:
            return made.view(batch, size, size, channels).permute(0, 3, 1, 2)
        return made.view(batch, channels, size, size)

    def _by_tensors(self, images: Tensor, uniforms: Tensor, size: int, sizes: Tensor | None) -> Tensor:
        views = self.policy(images, uniforms, size=size, sizes=sizes)
        if self.mean is not None and self.std is not None:
            views = normalise(views, self.mean, self.std)
        return views.contiguous(memory_format=torch.channels_last) if self.channels_last else views


def _placements(
    crop: Crop, heights: Tensor, widths: Tensor, uniforms: Tensor, size: int
) -> NDArray[np.float64]:
    """[B, 8], in the order of a `Placement`'s fields."""
    if isinstance(crop, RandomCrop):
        places = np.empty((len(heights), 8))
        sides = (heights.long().numpy(), widths.long().numpy())
        crops.crop_rows(*sides, uniforms.contiguous().numpy(), *crop.scale, *crop.ratio, places)
        return places
    placement = crop(heights, widths, uniforms[:, : crop.draws], size)
    return torch.stack([getattr(placement, field.name) for field in fields(placement)], dim=1).numpy()


def _warps(
    warp: Warp | None, places: NDArray[np.float64], size: int
) -> tuple[NDArray[np.uint8], NDArray[np.float32], bool, float]:
    """How each row is resampled [B], its maps [B, T, 3, 3], whether they are projective, the fill or NaN."""
    batch = len(places)
    if warp is None:
        return np.zeros(batch, np.uint8), np.zeros((batch, 0, 3, 3), np.float32), False, math.nan
    shrunk = (places[:, 2] > size) | (places[:, 3] > size)  # bilinear taps alone would alias
    kinds = np.where(shrunk, np.uint8(geometry.REDUCED), np.uint8(geometry.WARPED))
    kinds[~warp.active.numpy()] = geometry.FLAT
    matrices = warp.matrices.float().contiguous().numpy()
    return kinds, matrices, warp.projective, math.nan if warp.fill is None else warp.fill


def _programs(operations: Sequence[Operation], shares: Sequence[Tensor], size: int) -> list[Program]:
    """What is done to the colours, in as few calls as can be."""
    programs: list[Program] = []
    for operation, share in zip(operations, shares, strict=True):
        wanted = program(operation, share, size)
        if wanted is not None and programs and programs[-1].loop is wanted.loop:
            programs[-1] = programs[-1].then(wanted)
        elif wanted is not None:
            programs.append(wanted)
    return programs


def _on_threads(make: Callable[[int, int], None], batch: int) -> None:
    """make(begin, end) over all rows, on as many threads as torch has."""
    threads = max(1, min(torch.get_num_threads(), batch // FEWEST_ROWS))
    if threads == 1:
        make(0, batch)
        return
    cuts = [batch * number // threads for number in range(threads + 1)]
    list(_workers(threads, os.getpid()).map(make, cuts[:-1], cuts[1:]))


@cache
def _workers(threads: int, process: int) -> ThreadPoolExecutor:  # noqa: ARG001 - a forked process has no threads left
    return ThreadPoolExecutor(threads, "maskcon-views")

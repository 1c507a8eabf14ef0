"""Views of photographs by numba loops: the views of the tensor code up to rounding, for uint8 images on a CPU.

`compiled_policy` makes them; `settled_engine` decides whether a run uses them. Crops, mirrors, warps and the colour
operations of photographs are compiled; policies with other operations use the tensor code. The policy's own code
decides what happens to each image, as tables of [B] numbers; the loops apply it. The bits of a view depend neither on
the batch nor on the number of threads. Importing this module does not import numba.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from importlib.util import find_spec
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskcon._utils.errors import UsageError
from maskcon.transforms.jitter import ColourJitter, GaussianBlur, Greyscale, box_taps
from maskcon.transforms.operations import Affine, Operation, Perspective, RandomOperation
from maskcon.transforms.policies import Policy, ViewPolicy, policy
from maskcon.transforms.resample import Warp

COMPILED_OPERATIONS = (Affine, ColourJitter, GaussianBlur, Greyscale, Perspective)
FEWEST_ROWS = 8  # per thread
NOTHING = -1  # an operation that is skipped


def has_numba() -> bool:
    """Whether numba is installed."""
    return find_spec("numba") is not None


def can_compile(view: Policy) -> bool:
    """Whether all operations of a policy have compiled loops."""
    return isinstance(view, ViewPolicy) and all(type(o) in COMPILED_OPERATIONS for o in view.operations)


def settled_engine(
    wanted: Literal["auto", "tensor", "compiled"], *names: str
) -> Literal["tensor", "compiled"]:
    """Return the engine for policies of these names; "auto" is "compiled" where possible."""
    without = [name for name in names if not can_compile(policy(name))]
    if wanted == "auto":
        return "tensor" if without or not has_numba() else "compiled"
    if wanted == "compiled" and without:
        raise UsageError(f"view policy {without[0]!r} has no compiled loops; choose another --out")
    return wanted


def compiled_policy(
    name: str,
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
    *,
    channels_last: bool = False,
) -> CompiledPolicy:
    """Return the policy of this name by compiled loops, with normalised views where mean and std are given.

    The first call on a machine compiles for ten to twenty seconds; numba keeps the result on disk.
    """
    settled_engine("compiled", name)
    if not has_numba():
        raise UsageError(
            "the views of this run are made by compiled loops, which need numba: pip install 'maskcon[compiled]', "
            "or choose another --out"
        )
    view = policy(name)
    assert isinstance(view, ViewPolicy)  # checked by `can_compile`
    return CompiledPolicy(view, mean, std, channels_last)


@dataclass(frozen=True)
class CompiledPolicy:
    """A policy by compiled loops; called like the policy, with the same uniforms.

    mean, std: per channel, to normalise with; without them views stay in [0, 1].
    channels_last: memory format of the views [B, C, size, size].
    """

    policy: ViewPolicy
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    channels_last: bool = False

    def __post_init__(self) -> None:
        from maskcon.transforms.kernels import colours, geometry  # noqa: F401 - compiled here, by one thread

    @property
    def name(self) -> str:
        return self.policy.name

    @property
    def draws(self) -> int:
        return self.policy.draws

    def __call__(self, images: Tensor, uniforms: Tensor, *, size: int, sizes: Tensor | None = None) -> Tensor:
        """images [B, C, H, W], uniforms [B, draws] -> float32 [B, C, size, size]."""
        from maskcon.transforms.kernels import colours, geometry

        if images.dtype != torch.uint8 or images.device.type != "cpu":
            raise UsageError(
                f"compiled views need uint8 images on the CPU, got {images.dtype} on {images.device}; "
                f"use policy({self.name!r})"
            )
        heights, widths = self.policy.check(images, uniforms, size, sizes)
        shares = self.policy.shares(uniforms)
        batch, channels = images.shape[:2]
        pixels = images.contiguous().numpy()
        crop = self.policy.crop
        placement = crop(heights, widths, size, uniforms[:, : crop.draws])
        places = torch.stack([getattr(placement, field.name) for field in fields(placement)], dim=1).numpy()
        mirrored = self.policy.mirrored(uniforms)
        turned = np.zeros(batch, bool) if mirrored is None else mirrored.numpy()
        kinds, matrices, projective, fill = _warps(self.policy.warp(shares, size), places, size)
        operations, amounts = _colour_operations(self.policy.operations, shares)
        views = torch.empty(batch, channels, size, size)

        def make(begin: int, end: int) -> None:
            part = views[begin:end].numpy()
            geometry.resample_rows(pixels, places, turned, kinds, matrices, projective, fill, begin, part)
            colours.change_rows(operations, amounts, begin, part)

        _on_threads(make, batch)
        views.mul_(1 / 255).clamp_(0.0, 1.0)
        if self.mean is not None and self.std is not None:
            inverse = torch.tensor([1 / spread for spread in self.std])
            views.sub_(torch.tensor(self.mean).view(-1, 1, 1)).mul_(inverse.view(-1, 1, 1))
        if self.channels_last:
            views = torch.empty(batch, size, size, channels).permute(0, 3, 1, 2).copy_(views)
        return views


def _warps(
    warp: Warp | None, places: NDArray[np.float64], size: int
) -> tuple[NDArray[np.uint8], NDArray[np.float32], bool, float]:
    """Return kind [B] and matrices [B, T, 3, 3] per row, whether they are projective, and the fill or NaN."""
    from maskcon.transforms.kernels import geometry

    batch = len(places)
    if warp is None:
        return np.zeros(batch, np.uint8), np.zeros((batch, 0, 3, 3), np.float32), False, math.nan
    shrunk = (places[:, 2] > size) | (places[:, 3] > size)  # bilinear taps alone would alias
    kinds = np.where(shrunk, np.uint8(geometry.REDUCED), np.uint8(geometry.WARPED))
    kinds[~warp.active.numpy()] = geometry.FLAT
    matrices = warp.matrices.float().contiguous().numpy()
    return kinds, matrices, warp.projective, math.nan if warp.fill is None else warp.fill


def _colour_operations(
    operations: Sequence[Operation], shares: Sequence[Tensor]
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return the numbers of the colour operations [B, T], in order, and their amounts [B, T, 2].

    Amounts are computed from the uniforms by the code of the tensor path.
    """
    from maskcon.transforms.kernels import colours

    batch = len(shares[0]) if shares else 0
    numbers, amounts = [], []
    for operation, share in zip(operations, shares, strict=True):
        if not isinstance(operation, RandomOperation):
            continue  # a warp
        chosen = share[:, :1] < operation.probability  # [B, 1]
        if isinstance(operation, ColourJitter):
            order = operation.order(share)  # [B, 4]
            factors = operation.amounts(share).gather(1, order)
            numbers.append(order.where(chosen, NOTHING))
            amounts.append(torch.stack([factors, torch.zeros_like(factors)], dim=2))
        elif isinstance(operation, Greyscale):
            numbers.append(torch.where(chosen, colours.GREY, NOTHING))
            amounts.append(torch.zeros(batch, 1, 2))
        elif isinstance(operation, GaussianBlur):
            numbers.append(torch.where(chosen, colours.BLUR, NOTHING))
            amounts.append(torch.stack(box_taps(operation.sigmas(share)), dim=1).unsqueeze(1))
    if not numbers:
        return np.zeros((batch, 0), np.int8), np.zeros((batch, 0, 2), np.float32)
    return torch.cat(numbers, dim=1).to(torch.int8).numpy(), torch.cat(amounts, dim=1).float().numpy()


def _on_threads(make: Callable[[int, int], None], batch: int) -> None:
    """Call make(begin, end) over all rows, on as many threads as torch has."""
    threads = max(1, min(torch.get_num_threads(), batch // FEWEST_ROWS))
    if threads == 1:
        make(0, batch)
        return
    cuts = [batch * number // threads for number in range(threads + 1)]
    with ThreadPoolExecutor(threads, "maskcon-views") as pool:
        list(pool.map(make, cuts[:-1], cuts[1:]))

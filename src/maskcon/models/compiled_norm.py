"""BatchNorm by compiled loops, where a CPU trains on one thread: the same numbers up to rounding, sooner.

How much sooner a step becomes: `benchmarks/step_options.py norms`; the narrower the net, the more. Torch's own are
shared out over threads and these are not, so with two or more torch's do the work. Importing this imports no numba.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

LINE = 512  # numbers in a line at most, so that the sums of a few lines stay in the nearest cache


class CompiledBatchNorm2d(nn.BatchNorm2d):
    """`nn.BatchNorm2d` that takes compiled loops where they can do the work; made by `compile_batchnorm`."""

    def forward(self, maps: Tensor) -> Tensor:
        return self._compiled(maps, None, rectify=False) if self.fits(maps) else super().forward(maps)

    def rectified(self, maps: Tensor, beside: Tensor | None = None) -> Tensor:
        """ReLU of these maps normalised, plus those beside them."""
        if self.fits(maps) and (beside is None or _alike(beside, maps)):
            return self._compiled(maps, beside, rectify=True)
        out = super().forward(maps)
        return torch.relu_(out if beside is None else out.add_(beside))

    def fits(self, maps: Tensor) -> bool:
        """Whether the loops can normalise these maps ``[B, C, H, W]``: the one place that decides."""
        return (
            not torch.compiler.is_compiling()
            and self.training
            and maps.dtype == torch.float32
            and maps.device.type == "cpu"
            and maps.is_contiguous(memory_format=torch.channels_last)
            and self.affine
            and self.track_running_stats
            and self.momentum is not None  # or statistics are a mean over batches (`measure_statistics`)
            and self.weight.dtype == torch.float32
            and maps.shape[1] == self.num_features
            and maps.numel() > self.num_features  # one pixel has no spread; torch's own says so
            and torch.get_num_threads() == 1
            and not torch.is_autocast_enabled("cpu")
            and not torch.jit.is_tracing()  # type: ignore[attr-defined,no-untyped-call]
        )

    def _compiled(self, maps: Tensor, beside: Tensor | None, *, rectify: bool) -> Tensor:
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        if not torch.is_grad_enabled():
            # To ask for a gradient that nobody wants takes as long as a small map.
            return _normalise(maps, beside, self, rectify)[0]
        out: Tensor = _Normalised.apply(maps, self.weight, self.bias, beside, self, rectify)  # type: ignore[no-untyped-call]
        return out


def compile_batchnorm(module: nn.Module) -> int:
    """Let every BatchNorm in `module` that is torch's own take compiled loops, in place; how many there were.

    Names in `state_dict()` stay. The loops are compiled when they are first wanted (see `load_loops`).

    >>> compile_batchnorm(nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)))
    1
    """
    count = 0
    for layer in module.modules():
        if type(layer) is nn.BatchNorm2d:
            layer.__class__ = CompiledBatchNorm2d  # keeps every reference to the layer valid
            count += 1
    return count


@cache
def load_loops() -> tuple[Callable[..., None], Callable[..., None]]:
    """Forward and backward: compiled now, in some seconds, or read from the cache of an earlier process."""
    from maskcon.models import norm_loops

    return norm_loops.forward.ready, norm_loops.backward.ready


def _normalise(
    maps: Tensor, beside: Tensor | None, layer: CompiledBatchNorm2d, rectify: bool
) -> tuple[Tensor, Tensor]:
    """What comes out, and mean and 1 / standard deviation ``[2, C]``; the running statistics of `layer` move on."""
    assert rectify or beside is None  # going back, that would be another case
    channels = layer.num_features
    out, kept = torch.empty_like(maps), torch.empty(2, channels)
    lines, length = _lines(maps.numel() // channels, channels)
    assert layer.running_mean is not None
    assert layer.running_var is not None
    forward, _ = load_loops()
    forward(
        maps.data_ptr(),
        out.data_ptr(),
        0 if beside is None else beside.data_ptr(),
        lines,
        length,
        channels,
        layer.weight.data_ptr(),
        layer.bias.data_ptr(),
        layer.running_mean.data_ptr(),
        layer.running_var.data_ptr(),
        layer.momentum,
        layer.eps,
        kept.data_ptr(),
        rectify,
    )
    return out, kept


class _Normalised(torch.autograd.Function):
    """weight and bias are the layer's; they are arguments so that gradients reach them."""

    @staticmethod
    def forward(
        ctx: Any,
        maps: Tensor,
        weight: Tensor,
        bias: Tensor,  # noqa: ARG004
        beside: Tensor | None,
        layer: CompiledBatchNorm2d,
        rectify: bool,
    ) -> Tensor:
        out, kept = _normalise(maps, beside, layer, rectify)
        ctx.save_for_backward(maps, weight, kept, out if rectify else None)
        ctx.beside = beside is not None
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        maps, weight, kept, out = ctx.saved_tensors
        channels = len(weight)
        grad = grad.contiguous(memory_format=torch.channels_last)
        grad_maps, grad_affine = torch.empty_like(maps), torch.empty(2, channels)
        grad_beside = torch.empty_like(maps) if ctx.beside else None
        lines, length = _lines(maps.numel() // channels, channels)
        _, backward = load_loops()
        backward(
            grad.data_ptr(),
            0 if out is None else out.data_ptr(),
            maps.data_ptr(),
            lines,
            length,
            channels,
            weight.data_ptr(),
            kept.data_ptr(),
            grad_maps.data_ptr(),
            0 if grad_beside is None else grad_beside.data_ptr(),
            grad_affine.data_ptr(),
        )
        return grad_maps, grad_affine[0], grad_affine[1], grad_beside, None, None


def _alike(beside: Tensor, maps: Tensor) -> bool:
    return (
        beside.shape == maps.shape
        and beside.dtype == maps.dtype
        and beside.is_contiguous(memory_format=torch.channels_last)
    )


@cache
def _lines(pixels: int, channels: int) -> tuple[int, int]:
    """How many lines of how many numbers: as many whole pixels a line as `LINE` allows and divide them all.

    >>> _lines(32768, 16), _lines(9, 16), _lines(6, 1024)
    ((1024, 512), (1, 144), (6, 1024))
    """
    side = next(n for n in range(max(1, min(pixels, LINE // channels)), 0, -1) if pixels % n == 0)
    return pixels // side, side * channels

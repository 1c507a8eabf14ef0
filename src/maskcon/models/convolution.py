"""Convolutions that a CPU computes faster as plain matrix products; the same numbers up to rounding.

Measured on one core against PyTorch's own (channels-last, batch 128):

- A 1x1 convolution of stride 2 is one product over every fourth pixel: 1.3 to 2 times as fast.
- On a map of a few pixels most of a padded 3x3 kernel lies outside: of a 2x2 map it sees 16 pairs of pixels, not 36.
  Visiting the pairs that exist makes going forward and back 1.5 to 5 times as fast where 2x2 pixels come out.
- Up to 4x4 pixels, the gradient of the weights alone: 1.4 to 3 times.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.grad import conv2d_input

ALL_BY_PRODUCTS_PIXELS = 4  # of the map that comes out: up to here products win in all three passes
WEIGHTS_BY_PRODUCTS_PIXELS = 16  # up to here they win for the gradient of the weights
SMALLEST_PRODUCT = 64 * 128  # channels in times channels out; products of fewer are too small to pay

Way = Literal["library", "pointwise", "products", "weights by products"]


class Convolution(nn.Conv2d):
    """`nn.Conv2d` of an odd kernel, padded to keep the size, with the way of computing it chosen at each call."""

    def forward(self, maps: Tensor) -> Tensor:
        way = self.way(maps)
        if way == "library":
            return torch.conv2d(maps, self.weight, self.bias, self.stride, self.padding)
        out: Tensor
        if not torch.is_grad_enabled() and way != "weights by products":
            # To ask for a gradient that nobody wants takes as long as a small product.
            if way == "pointwise":
                out, _ = _pointwise(maps, self.weight, self.stride[0])
            else:
                out = _products(maps, self.weight, self.stride[0])
        elif way == "pointwise":
            out = _Pointwise.apply(maps, self.weight, self.stride[0])  # type: ignore[no-untyped-call]
        else:
            out = _Products.apply(maps, self.weight, self.stride[0], way == "products")  # type: ignore[no-untyped-call]
        return out

    def way(self, maps: Tensor) -> Way:
        """How these maps ``[B, C, H, W]`` are convolved: the one place that decides."""
        plain = (
            maps.device.type == "cpu"
            and self.bias is None
            and maps.dtype == self.weight.dtype
            and maps.dtype in (torch.float32, torch.float64)
            and maps.is_contiguous(memory_format=torch.channels_last)
            and self.weight.is_contiguous(memory_format=torch.channels_last)
            and not torch.is_autocast_enabled("cpu")
            and not torch.compiler.is_compiling()
            and not torch.jit.is_tracing()  # type: ignore[attr-defined,no-untyped-call]
        )
        if not plain:
            return "library"
        if self.kernel_size == (1, 1):
            return "pointwise" if self.stride[0] > 1 else "library"
        pixels = _size_out(maps.shape[2], self) * _size_out(maps.shape[3], self)
        if self.in_channels * self.out_channels < SMALLEST_PRODUCT or pixels > WEIGHTS_BY_PRODUCTS_PIXELS:
            return "library"
        return "products" if pixels <= ALL_BY_PRODUCTS_PIXELS else "weights by products"


def _size_out(size: int, layer: nn.Conv2d) -> int:
    return (size - 1) // layer.stride[0] + 1


def _pointwise(maps: Tensor, weight: Tensor, stride: int) -> tuple[Tensor, Tensor]:
    """What comes out, and the pixels that the stride met ``[B*h*w, C]``."""
    met = maps.permute(0, 2, 3, 1)[:, ::stride, ::stride]  # [B, h, w, C]
    rows = met.reshape(-1, met.shape[3])
    out = _channels_last(maps, len(weight), met.shape[1], met.shape[2])
    torch.mm(rows, weight.flatten(1).T, out=out.permute(0, 2, 3, 1).view(-1, len(weight)))
    return out, rows


class _Pointwise(torch.autograd.Function):
    """A 1x1 convolution: the pixels that the stride meets, times the weights."""

    @staticmethod
    def forward(ctx: Any, maps: Tensor, weight: Tensor, stride: int) -> Tensor:
        out, rows = _pointwise(maps, weight, stride)
        ctx.save_for_backward(rows, weight)
        ctx.stride, ctx.shape = stride, maps.shape
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight = ctx.saved_tensors
        sizes = grad.shape[0], *grad.shape[2:]  # B, h, w
        grad_rows = grad.permute(0, 2, 3, 1).reshape(-1, len(weight))
        grad_maps = grad_weight = None
        if ctx.needs_input_grad[0]:
            channels = weight.shape[1]
            grad_maps = _channels_last(grad, *ctx.shape[1:]).zero_()
            met = grad_maps.permute(0, 2, 3, 1)[:, :: ctx.stride, :: ctx.stride]
            met.copy_((grad_rows @ weight.flatten(1)).view(*sizes, channels))
        if ctx.needs_input_grad[1]:
            grad_weight = (grad_rows.T @ rows).view_as(weight)
        return grad_maps, grad_weight, None


def _products(maps: Tensor, weight: Tensor, stride: int) -> Tensor:
    height, width = ((size - 1) // stride + 1 for size in maps.shape[2:])
    out = _channels_last(maps, len(weight), height, width)
    pixel, met, taps = _Stretches(out), _Stretches(maps), _Stretches(weight)
    channels = len(weight)
    for visit in _visits(*maps.shape[1:], weight.shape[2], stride):
        # beta = 0: whatever the memory held before does not count
        pixel(visit.pixel * channels, channels).addmm_(
            met(visit.met, visit.length), taps.turned(visit.taps, visit.length), beta=int(not visit.first)
        )
    return out


class _Products(torch.autograd.Function):
    """A k x k convolution as a product for each pixel that comes out and each row of the kernel that it meets.

    The pixels that a row of the kernel meets lie side by side in memory, as do that row's weights, so each of these
    products reads and writes the maps where they are.
    """

    @staticmethod
    def forward(ctx: Any, maps: Tensor, weight: Tensor, stride: int, forward_too: bool) -> Tensor:
        ctx.save_for_backward(maps, weight)
        ctx.stride, ctx.data_too = stride, forward_too
        if forward_too:
            return _products(maps, weight, stride)
        return nn.functional.conv2d(maps, weight, stride=stride, padding=weight.shape[2] // 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        maps, weight = ctx.saved_tensors
        grad = grad.contiguous(memory_format=torch.channels_last)
        grad_maps = grad_weight = None
        visits = _visits(*maps.shape[1:], weight.shape[2], ctx.stride)
        pixel, channels = _Stretches(grad), len(weight)
        if ctx.needs_input_grad[0] and not ctx.data_too:
            grad_maps = conv2d_input(  # type: ignore[no-untyped-call]
                maps.shape, weight, grad, stride=ctx.stride, padding=weight.shape[2] // 2
            )
        elif ctx.needs_input_grad[0]:
            grad_maps = torch.zeros_like(maps)
            reached, taps = _Stretches(grad_maps), _Stretches(weight)
            for visit in visits:
                reached(visit.met, visit.length).addmm_(
                    pixel(visit.pixel * channels, channels), taps(visit.taps, visit.length)
                )
        if ctx.needs_input_grad[1]:
            grad_weight = torch.zeros_like(weight)
            reached, met = _Stretches(grad_weight), _Stretches(maps)
            for visit in visits:
                reached(visit.taps, visit.length).addmm_(
                    pixel.turned(visit.pixel * channels, channels), met(visit.met, visit.length)
                )
        return grad_maps, grad_weight, None, None


class _Visit(NamedTuple):
    """A row of the kernel on the map: where its pixels and its weights begin, counted in numbers, and how many."""

    pixel: int  # the one that comes out
    first: bool  # of this pixel's
    met: int
    taps: int
    length: int


@cache
def _visits(channels: int, height: int, width: int, kernel: int, stride: int) -> tuple[_Visit, ...]:
    """For each pixel that comes out, each row of the kernel that lies on the map."""
    visits: list[_Visit] = []
    number = 0
    for top in range(-(kernel // 2), height - kernel // 2, stride):  # where the kernel begins
        for left in range(-(kernel // 2), width - kernel // 2, stride):
            begin, end = max(0, left), min(width, left + kernel)
            rows = range(max(0, top), min(height, top + kernel))
            for row in rows:
                met = (row * width + begin) * channels
                taps = ((row - top) * kernel + begin - left) * channels
                visits.append(_Visit(number, row == rows[0], met, taps, (end - begin) * channels))
            number += 1
    return tuple(visits)


class _Stretches:
    """Numbers side by side, the same ones of each sample of channels-last maps: ``[B, length]``, the same memory.

    By one view each: by slices it would be four, and a product of this size takes no longer than ten.
    """

    def __init__(self, maps: Tensor) -> None:
        self._maps, self._count, self._start = maps, len(maps), maps.storage_offset()
        self._step = math.prod(maps.shape[1:])

    def __call__(self, begin: int, length: int) -> Tensor:
        return self._maps.as_strided((self._count, length), (self._step, 1), self._start + begin)

    def turned(self, begin: int, length: int) -> Tensor:
        """The same as ``[length, B]``."""
        return self._maps.as_strided((length, self._count), (1, self._step), self._start + begin)


def _channels_last(like: Tensor, channels: int, height: int, width: int) -> Tensor:
    return torch.empty(
        (len(like), channels, height, width), dtype=like.dtype, memory_format=torch.channels_last
    )

"""Convolutions that a CPU computes faster as plain matrix products; the same numbers up to rounding.

Measured on one core against PyTorch's own (channels-last, batch 128):

- A 1x1 convolution of stride 2 is one product over every fourth pixel: 1.3 to 2 times as fast.
- On a map of a few pixels most of a padded 3x3 kernel lies outside: of a 2x2 map it sees 16 pairs of pixels, not 36.
  Visiting the pairs that exist makes going forward and back 1.5 to 5 times as fast where 2x2 pixels come out.
- Up to 4x4 pixels, the gradient of the weights alone: 1.4 to 3 times.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

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
            return super().forward(maps)
        if way == "pointwise":
            pointwise: Tensor = _Pointwise.apply(maps, self.weight, self.stride[0])  # type: ignore[no-untyped-call]
            return pointwise
        products: Tensor = _Products.apply(maps, self.weight, self.stride[0], way == "products")  # type: ignore[no-untyped-call]
        return products

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


class _Pointwise(torch.autograd.Function):
    """A 1x1 convolution: the pixels that the stride meets, times the weights."""

    @staticmethod
    def forward(ctx: Any, maps: Tensor, weight: Tensor, stride: int) -> Tensor:
        met = maps.permute(0, 2, 3, 1)[:, ::stride, ::stride]  # [B, h, w, C]
        rows = met.reshape(-1, met.shape[3])
        out = _channels_last(maps, len(weight), met.shape[1], met.shape[2])
        torch.mm(rows, weight.flatten(1).T, out=out.permute(0, 2, 3, 1).view(-1, len(weight)))
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


class _Products(torch.autograd.Function):
    """A k x k convolution as a product for each pixel that comes out and each row of the kernel that it meets.

    The pixels that a row of the kernel meets lie side by side in memory, as do that row's weights, so each of these
    products reads and writes the maps where they are.
    """

    @staticmethod
    def forward(ctx: Any, maps: Tensor, weight: Tensor, stride: int, forward_too: bool) -> Tensor:
        ctx.save_for_backward(maps, weight)
        ctx.stride, ctx.data_too = stride, forward_too
        if not forward_too:
            return nn.functional.conv2d(maps, weight, stride=stride, padding=weight.shape[2] // 2)
        height, width = ((size - 1) // stride + 1 for size in maps.shape[2:])
        out = _channels_last(maps, len(weight), height, width).zero_()
        pixels, taps, met = _pixels(out), _rows(weight), _rows(maps)
        for pixel, row, kernel_row, inside, across in _visits(maps, weight, stride):
            pixels[:, pixel].addmm_(met[:, row, inside], taps[:, kernel_row, across].T)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        maps, weight = ctx.saved_tensors
        grad = grad.contiguous(memory_format=torch.channels_last)
        grad_maps = grad_weight = None
        pixels = _pixels(grad)
        if ctx.needs_input_grad[0] and not ctx.data_too:
            grad_maps = conv2d_input(  # type: ignore[no-untyped-call]
                maps.shape, weight, grad, stride=ctx.stride, padding=weight.shape[2] // 2
            )
        elif ctx.needs_input_grad[0]:
            grad_maps = torch.zeros_like(maps)
            reached, taps = _rows(grad_maps), _rows(weight)
            for pixel, row, kernel_row, inside, across in _visits(maps, weight, ctx.stride):
                reached[:, row, inside].addmm_(pixels[:, pixel], taps[:, kernel_row, across])
        if ctx.needs_input_grad[1]:
            grad_weight = torch.zeros_like(weight)
            reached, met = _rows(grad_weight), _rows(maps)
            for pixel, row, kernel_row, inside, across in _visits(maps, weight, ctx.stride):
                reached[:, kernel_row, across].addmm_(pixels[:, pixel].T, met[:, row, inside])
        return grad_maps, grad_weight, None, None


def _visits(maps: Tensor, weight: Tensor, stride: int) -> Iterator[tuple[int, int, int, slice, slice]]:
    """For each pixel that comes out, each row of the kernel that lies on the map.

    The pixel's number, the row of the map, the row of the kernel, and which stretch of each they share, as numbers
    side by side (pixels times channels).
    """
    channels, height, width = maps.shape[1:]
    kernel = weight.shape[2]
    number = 0
    for top in range(-(kernel // 2), height - kernel // 2, stride):  # where the kernel begins
        for left in range(-(kernel // 2), width - kernel // 2, stride):
            begin, end = max(0, left), min(width, left + kernel)
            inside = slice(begin * channels, end * channels)
            across = slice((begin - left) * channels, (end - left) * channels)
            for row in range(max(0, top), min(height, top + kernel)):
                yield number, row, row - top, inside, across
            number += 1


def _channels_last(like: Tensor, channels: int, height: int, width: int) -> Tensor:
    return torch.empty(
        (len(like), channels, height, width), dtype=like.dtype, memory_format=torch.channels_last
    )


def _rows(maps: Tensor) -> Tensor:
    """Channels-last ``[B, C, H, W]`` as ``[B, H, W * C]``, the same memory."""
    return maps.permute(0, 2, 3, 1).flatten(2)


def _pixels(maps: Tensor) -> Tensor:
    """Channels-last ``[B, C, H, W]`` as ``[B, H * W, C]``, the same memory."""
    return maps.permute(0, 2, 3, 1).flatten(1, 2)

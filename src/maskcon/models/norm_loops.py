"""BatchNorm's passes over channels-last maps as compiled loops. Importing this imports numba.

PyTorch's own visit a pixel at a time, and a pixel of a narrow net is a vector or two: most of the time goes into going
from one to the next. Here a line holds several pixels, each place in it sums for itself, and the places of a channel
are put together at the end, in float64. Sums are taken about the first line of each block of lines, so a mean that is
large beside the spread costs no digits. ReLU and a shortcut cost no pass of their own.

Maps are given as the address of their first number: to make arrays of them takes as long as a small map does. Whoever
calls keeps the tensors alive and sees to it that they are float32 and as large as said.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, types  # type: ignore[attr-defined]
from numba.extending import intrinsic

from maskcon._utils.compilation import entry, inner

Array = Any  # numba's arrays of a fixed type

BLOCK = 64  # lines summed in float32 before their sums go on in float64
ZERO = np.float32(0.0)


def _pointer(typing: Any, address: Any) -> Any:  # noqa: ARG001 - what numba asks for
    """The pointer to float32 that an address is."""

    def pointer(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(types.float32)(types.int64), pointer  # type: ignore[no-untyped-call]


_floats_at: Any = intrinsic(_pointer)


@inner
def _statistics(maps: Array, channels: int, mean: Array, spread: Array, total: Array, squares: Array) -> None:
    """maps [n, L] -> mean [C], and the sum of squared distances from it [C]. total, squares: room for a line each."""
    lines, length = maps.shape
    pixels = length // channels
    within = np.zeros(channels)
    first = np.zeros(channels)
    second = np.zeros(channels)
    for begin in range(0, lines, BLOCK):
        end = min(lines, begin + BLOCK)
        for place in range(length):
            total[place] = ZERO
            squares[place] = ZERO
        origin = maps[begin]
        for number in range(begin, end):
            line = maps[number]
            for place in range(length):
                distance = line[place] - origin[place]
                total[place] += distance
                squares[place] += distance * distance
        count = end - begin
        for pixel in range(pixels):
            for channel in range(channels):
                place = pixel * channels + channel
                moved = np.float64(total[place]) / count
                within[channel] += squares[place] - moved * total[place]
                # Means of blocks are compared with that of the first line, for the same reason as above.
                offset = np.float64(origin[place]) - maps[0, channel] + moved
                first[channel] += count * offset
                second[channel] += count * offset * offset
    for channel in range(channels):
        offset = first[channel] / (lines * pixels)
        mean[channel] = maps[0, channel] + offset
        spread[channel] = within[channel] + max(0.0, second[channel] - offset * first[channel])


@inner
def _repeat(line: Array, channels: int) -> None:
    """Fill a line with its first `channels` numbers, again and again."""
    for place in range(channels, len(line)):
        line[place] = line[place - channels]


@entry(
    "int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, float64, float64, int64, boolean"
)
def forward(
    maps_at: int,
    out_at: int,
    beside_at: int,
    lines: int,
    length: int,
    channels: int,
    weight_at: int,
    bias_at: int,
    running_at: int,
    running_spread_at: int,
    momentum: float,
    eps: float,
    kept_at: int,
    rectify: bool,
) -> None:
    """out = maps normalised by their own statistics, plus what is beside them, rectified if that is asked.

    maps, out, beside [n, L], beside at 0 where there is nothing; weight, bias, running mean and variance [C], of which
    the last two move on. kept [2, C]: mean and 1 / standard deviation, for going back.
    """
    maps = carray(_floats_at(maps_at), (lines, length))
    out = carray(_floats_at(out_at), (lines, length))
    weight = carray(_floats_at(weight_at), channels)
    bias = carray(_floats_at(bias_at), channels)
    running = carray(_floats_at(running_at), channels)
    running_spread = carray(_floats_at(running_spread_at), channels)
    kept = carray(_floats_at(kept_at), (2, channels))
    scale = np.empty(length, np.float32)
    shift = np.empty(length, np.float32)
    mean = np.empty(channels)
    spread = np.empty(channels)
    _statistics(maps, channels, mean, spread, scale, shift)
    count = lines * (length // channels)
    for channel in range(channels):
        inverse = 1.0 / np.sqrt(spread[channel] / count + eps)
        kept[0, channel] = mean[channel]
        kept[1, channel] = inverse
        running[channel] = (1.0 - momentum) * running[channel] + momentum * mean[channel]
        variance = spread[channel] / (count - 1)
        running_spread[channel] = (1.0 - momentum) * running_spread[channel] + momentum * variance
        scale[channel] = weight[channel] * inverse
        shift[channel] = bias[channel] - mean[channel] * weight[channel] * inverse
    _repeat(scale, channels)
    _repeat(shift, channels)
    if beside_at:
        beside = carray(_floats_at(beside_at), (lines, length))
        for number in range(lines):
            line, other, into = maps[number], beside[number], out[number]
            for place in range(length):
                into[place] = line[place] * scale[place] + shift[place] + other[place]
            if rectify:
                for place in range(length):  # written so that a NaN stays one
                    into[place] = ZERO if into[place] < ZERO else into[place]
    else:
        for number in range(lines):
            line, into = maps[number], out[number]
            for place in range(length):
                into[place] = line[place] * scale[place] + shift[place]
            if rectify:
                for place in range(length):
                    into[place] = ZERO if into[place] < ZERO else into[place]


# Sums lie in one array with what they need: the compiler vectorises a loop only if it can see, by few comparisons, that
# none of the arrays written to overlaps another.
TOTAL, PRODUCT, MEAN = 0, 1, 2


@inner
def _sum(grad: Array, maps: Array, sums: Array) -> None:
    """Add a line of gradients [L] to sums [3, L], as it is and times the distance of its maps from the mean."""
    for place in range(len(grad)):
        sums[TOTAL, place] += grad[place]
        sums[PRODUCT, place] += grad[place] * (maps[place] - sums[MEAN, place])


@inner
def _sum_rectified(grad: Array, out: Array, maps: Array, sums: Array) -> None:
    """The same, of gradients as they are before the ReLU that `out` came out of."""
    for place in range(len(grad)):
        slope = grad[place]
        slope = ZERO if out[place] <= ZERO else slope
        sums[TOTAL, place] += slope
        sums[PRODUCT, place] += slope * (maps[place] - sums[MEAN, place])


@inner
def _sum_and_keep(grad: Array, out: Array, maps: Array, sums: Array, kept: Array) -> None:
    """The same, and these gradients are kept."""
    for place in range(len(grad)):
        slope = grad[place]
        slope = ZERO if out[place] <= ZERO else slope
        kept[place] = slope
        sums[TOTAL, place] += slope
        sums[PRODUCT, place] += slope * (maps[place] - sums[MEAN, place])


@inner
def _mix(grad: Array, maps: Array, by: Array, into: Array) -> None:
    """Gradients times by[0], plus maps times by[1], plus by[2]; by [3, L]."""
    for place in range(len(grad)):
        into[place] = by[0, place] * grad[place] + (by[1, place] * maps[place] + by[2, place])


@inner
def _mix_rectified(grad: Array, out: Array, maps: Array, by: Array, into: Array) -> None:
    for place in range(len(grad)):
        slope = grad[place]
        slope = ZERO if out[place] <= ZERO else slope
        into[place] = by[0, place] * slope + (by[1, place] * maps[place] + by[2, place])


@entry("int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, int64")
def backward(
    grad_at: int,
    out_at: int,
    maps_at: int,
    lines: int,
    length: int,
    channels: int,
    weight_at: int,
    kept_at: int,
    grad_maps_at: int,
    grad_beside_at: int,
    grad_affine_at: int,
) -> None:
    """Gradients of maps [n, L], of what is beside them (none at 0), and of weight and bias [2, C].

    grad [n, L]: the gradient of what came out. out [n, L]: that itself, where it was rectified, else at 0.
    """
    grad = carray(_floats_at(grad_at), (lines, length))
    out = carray(_floats_at(out_at), (lines, length))
    maps = carray(_floats_at(maps_at), (lines, length))
    weight = carray(_floats_at(weight_at), channels)
    kept = carray(_floats_at(kept_at), (2, channels))
    grad_maps = carray(_floats_at(grad_maps_at), (lines, length))
    grad_affine = carray(_floats_at(grad_affine_at), (2, channels))
    grad_beside = carray(_floats_at(grad_beside_at), (lines, length))
    by_place = np.empty((3, length), np.float32)
    by_place[MEAN, :channels] = kept[0]
    _repeat(by_place[MEAN], channels)
    total = np.zeros(channels)
    product = np.zeros(channels)
    for begin in range(0, lines, BLOCK):
        end = min(lines, begin + BLOCK)
        by_place[:MEAN] = ZERO
        for number in range(begin, end):
            if grad_beside_at:
                _sum_and_keep(grad[number], out[number], maps[number], by_place, grad_beside[number])
            elif out_at:
                _sum_rectified(grad[number], out[number], maps[number], by_place)
            else:
                _sum(grad[number], maps[number], by_place)
        for pixel in range(length // channels):
            for channel in range(channels):
                total[channel] += by_place[TOTAL, pixel * channels + channel]
                product[channel] += by_place[PRODUCT, pixel * channels + channel]

    # Gradient of a map = a * (slope - mean slope - normalised map * mean of slope * normalised map), written as
    # a * slope + b * map + c.
    count = lines * (length // channels)
    for channel in range(channels):
        inverse = np.float64(kept[1, channel])
        grad_affine[0, channel] = product[channel] * inverse
        grad_affine[1, channel] = total[channel]
        a = weight[channel] * inverse
        b = -a * inverse * inverse * product[channel] / count
        by_place[0, channel] = a
        by_place[1, channel] = b
        by_place[2, channel] = -a * total[channel] / count - b * kept[0, channel]
    for which in range(3):
        _repeat(by_place[which], channels)
    for number in range(lines):
        if grad_beside_at:
            _mix(grad_beside[number], maps[number], by_place, grad_maps[number])
        elif out_at:
            _mix_rectified(grad[number], out[number], maps[number], by_place, grad_maps[number])
        else:
            _mix(grad[number], maps[number], by_place, grad_maps[number])

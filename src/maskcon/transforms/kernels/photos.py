"""Jitter, grey, blur, tone and erasing of single samples: the loops of `transforms.jitter`; floats on 0..255."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from maskcon._utils.compilation import entry, inner

Array = Any  # numba's arrays of a fixed type; the signature below names each

# Numbers of the operations, and what their four amounts are; anything below is none.
BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)  # factor; of the hue: turns of the circle
GREY = 4
BLUR = 5  # full taps to either side, weight of the taps beyond
TONE = 6  # shift, factor, exponent
ERASE = 7  # top, left, height, width

ZERO, ONE, TOP = np.float32(0.0), np.float32(1.0), np.float32(255.0)
# log2(1 + x) by powers of x / (2 + x), 2 ** x by powers of x
LOG = tuple(np.float32(2 / (math.log(2) * odd)) for odd in (1, 3, 5, 7, 9))
EXP = tuple(np.float32(math.log(2) ** n / math.factorial(n)) for n in range(1, 8))
ROOT_BITS = np.int32(0x3F3504F3)  # of sqrt(1/2) as float32
LEAST, FARTHEST = np.float32(1e-30), np.float32(120.0)  # what is taken for nought, and its logarithm
RED, GREEN, BLUE = np.float32(0.299), np.float32(0.587), np.float32(0.114)


@inner
def blended(base: Any, value: Any, factor: Any) -> Any:
    return min(max((value - base) * factor + base, ZERO), TOP)


@inner
def grey(red: Any, green: Any, blue: Any) -> Any:
    return red * RED + green * GREEN + blue * BLUE


@inner
def mean_of(line: Array) -> Any:
    """In doubles, by eight sums side by side: their order is fixed, and none waits for another."""
    sums = np.zeros(8)
    total = 0.0
    whole = line.shape[0] // 8 * 8
    for pixel in range(0, whole, 8):
        for part in range(8):
            sums[part] += line[pixel + part]
    for pixel in range(whole, line.shape[0]):
        total += line[pixel]
    for part in range(8):
        total += sums[part]
    return total / line.shape[0]


@inner
def mean_grey(pixels: Array) -> Any:
    if pixels.shape[0] == 1:
        return np.float32(mean_of(pixels[0]))
    means = mean_of(pixels[0]) * 0.299 + mean_of(pixels[1]) * 0.587 + mean_of(pixels[2]) * 0.114
    return np.float32(means)


@inner
def trapezoid(sector: Any, offset: Any) -> Any:
    """How much chroma a channel lacks at a hue: see `jitter.shift_hue`."""
    place = sector + offset
    place -= np.float32(6.0) * np.floor(place / np.float32(6.0))
    return min(max(min(place, np.float32(4.0) - place), ZERO), ONE)


@inner
def shift_hue(pixels: Array, turns: Any) -> None:
    reds, greens, blues = pixels[0], pixels[1], pixels[2]
    moved = np.float32(6.0) * turns
    for pixel in range(pixels.shape[1]):
        red, green, blue = reds[pixel], greens[pixel], blues[pixel]
        value = max(max(red, green), blue)
        chroma = value - min(min(red, green), blue)
        safe = ONE if chroma == ZERO else chroma
        of_red = (green - blue) / safe
        of_green = np.float32(2.0) + (blue - red) / safe
        of_blue = np.float32(4.0) + (red - green) / safe
        sector = moved + (of_red if value == red else (of_green if value == green else of_blue))
        reds[pixel] = value - chroma * trapezoid(sector, np.float32(5.0))
        greens[pixel] = value - chroma * trapezoid(sector, np.float32(3.0))
        blues[pixel] = value - chroma * trapezoid(sector, np.float32(1.0))


@inner
def add_line(source: Array, first: int, weight: Any, target: Array) -> None:
    for x in range(target.shape[0]):
        target[x] += weight * source[first + x]


@inner
def blur_lines(image: Array, reach: int, part: Any, padded: Array, scale: Any) -> None:
    """One box blur of every line of image [S, S], edges repeated; padded [S + 2 * reach + 2] is scratch."""
    size = image.shape[1]
    for row in range(image.shape[0]):
        line = image[row]
        for x in range(reach + 1):
            padded[x], padded[reach + 1 + size + x] = line[0], line[size - 1]
        for x in range(size):
            padded[reach + 1 + x] = line[x]
        for x in range(size):
            line[x] = part * (padded[x] + padded[x + 2 * reach + 2])
        for tap in range(1, 2 * reach + 2):
            add_line(padded, tap, ONE, line)
        for x in range(size):
            line[x] *= scale


@inner
def blur_columns(image: Array, reach: int, part: Any, before: Array, scale: Any) -> None:
    """One box blur of every column of image [S, S], edges repeated; before [S, S] is scratch."""
    size = image.shape[0]
    for row in range(size):
        for x in range(image.shape[1]):
            before[row, x] = image[row, x]
    for row in range(size):
        line = image[row]
        above, below = before[max(row - reach - 1, 0)], before[min(row + reach + 1, size - 1)]
        for x in range(line.shape[0]):
            line[x] = part * (above[x] + below[x])
        for tap in range(-reach, reach + 1):
            add_line(before[min(max(row + tap, 0), size - 1)], 0, ONE, line)
        for x in range(line.shape[0]):
            line[x] *= scale


@inner
def blur(image: Array, whole: Any, part: Any, before: Array) -> None:
    """Three box blurs along each axis of image [S, S]."""
    reach = int(whole)
    scale = ONE / (np.float32(2.0) * (whole + part) + ONE)
    padded = np.empty(image.shape[1] + 2 * reach + 2, np.float32)
    for _ in range(3):
        blur_columns(image, reach, part, before, scale)
    for _ in range(3):
        blur_lines(image, reach, part, padded, scale)


@inner
def raise_to(values: Array, exponent: Any, bits: Array) -> None:
    """values [P] in [0, 1] to a power, to about 1e-6: 2 ** (exponent * log2(value)), in steps that can be vectorised.

    bits [P], int32, is scratch; its other face `powers` reads the same memory as float32.
    """
    powers = bits.view(np.float32)
    for place in range(values.shape[0]):
        powers[place] = max(values[place], LEAST)
    for place in range(values.shape[0]):
        # value = 2 ** whole * part with part in [0.7, 1.4): the exponent's bits after a shift by sqrt(1/2)
        whole = (bits[place] - ROOT_BITS) >> np.int32(23)
        bits[place] -= whole << np.int32(23)
        values[place] = np.float32(whole) if values[place] >= LEAST else -FARTHEST
    for place in range(values.shape[0]):
        part = (powers[place] - ONE) / (powers[place] + ONE)
        square = part * part
        series = ((square * LOG[4] + LOG[3]) * square + LOG[2]) * square + LOG[1]
        logarithm = values[place] + part * (series * square + LOG[0])
        power = max(exponent * logarithm, -FARTHEST)
        whole = np.floor(power + np.float32(0.5))
        values[place] = power - whole
        bits[place] = (np.int32(whole) + np.int32(127)) << np.int32(23)
    for place in range(values.shape[0]):
        rest = values[place]
        series = ((rest * EXP[6] + EXP[5]) * rest + EXP[4]) * rest + EXP[3]
        series = ((series * rest + EXP[2]) * rest + EXP[1]) * rest + EXP[0]
        values[place] = (series * rest + ONE) * powers[place]


@inner
def tone(pixels: Array, shift: Any, factor: Any, exponent: Any, bits: Array) -> None:
    total = 0.0
    for channel in range(pixels.shape[0]):
        total += mean_of(pixels[channel])
    mean = np.float32(total / pixels.shape[0])
    offset = mean + shift
    for channel in range(pixels.shape[0]):
        line = pixels[channel]
        for pixel in range(line.shape[0]):
            line[pixel] = min(max((line[pixel] - mean) * factor + offset, ZERO), TOP) / TOP
        raise_to(line, exponent, bits)
        for pixel in range(line.shape[0]):
            line[pixel] *= TOP


@inner
def erase(image: Array, top: int, left: int, height: int, width: int) -> None:
    for channel in range(image.shape[0]):
        mean = np.float32(mean_of(image[channel].reshape(image.shape[1] * image.shape[2])))
        for row in range(top, top + height):
            for column in range(left, left + width):
                image[channel, row, column] = mean


@inner
def change(operation: int, amounts: Array, image: Array, before: Array, bits: Array) -> None:
    """One operation on image [C, S, S]."""
    channels, size = image.shape[0], image.shape[1]
    pixels = image.reshape(channels, size * size)
    amount = amounts[0]
    if operation in (BRIGHTNESS, CONTRAST):
        mean = mean_grey(pixels) if operation == CONTRAST else ZERO
        values = image.reshape(channels * size * size)
        for place in range(values.shape[0]):
            values[place] = blended(mean, values[place], amount)
    elif operation in (SATURATION, GREY):
        factor = amount if operation == SATURATION else ZERO
        if channels == 3:
            red, green, blue = pixels[0], pixels[1], pixels[2]
            for pixel in range(size * size):
                luma = grey(red[pixel], green[pixel], blue[pixel])
                red[pixel] = blended(luma, red[pixel], factor)
                green[pixel] = blended(luma, green[pixel], factor)
                blue[pixel] = blended(luma, blue[pixel], factor)
    elif operation == HUE:
        if channels == 3:
            shift_hue(pixels, amount)
    elif operation == BLUR:
        for channel in range(channels):
            blur(image[channel], amount, amounts[1], before)
    elif operation == TONE:
        tone(pixels, amount, amounts[1], amounts[2], bits)
    else:
        erase(image, int(amount), int(amounts[1]), int(amounts[2]), int(amounts[3]))


@entry("int8[:, ::1], float32[:, :, ::1], int64, float32[:, :, :, ::1]")
def change_rows(operations: Array, amounts: Array, begin: int, views: Array) -> None:
    """Operations [B, T] with amounts [B, T, 4], of the rows from `begin` on, in turn on views [n, C, S, S] in place."""
    size = views.shape[2]
    before, bits = np.empty((size, size), np.float32), np.empty(size * size, np.int32)
    for number in range(views.shape[0]):
        row = begin + number
        for turn in range(operations.shape[1]):
            if operations[row, turn] >= 0:
                change(operations[row, turn], amounts[row, turn], views[number], before, bits)

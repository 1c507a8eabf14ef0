"""Jitter, grey and blur of single images (see `transforms.jitter`); floats on 0..255."""

from __future__ import annotations

from typing import Any

import numpy as np

from maskcon.transforms.kernels import entry, inner

Array = Any  # numba's arrays of a fixed type; the signature below names each

# Numbers of the operations, with the meaning of their two amounts; a negative number is no operation.
BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)  # factor; for the hue: turns of the circle
GREY = 4
BLUR = 5  # full taps to either side, weight of the next tap

ZERO, ONE, TOP = np.float32(0.0), np.float32(1.0), np.float32(255.0)
RED, GREEN, BLUE = np.float32(0.299), np.float32(0.587), np.float32(0.114)


@inner
def blended(base: Any, value: Any, factor: Any) -> Any:
    return min(max((value - base) * factor + base, ZERO), TOP)


@inner
def grey(red: Any, green: Any, blue: Any) -> Any:
    return red * RED + green * GREEN + blue * BLUE


@inner
def mean_of(line: Array) -> Any:
    """Mean in float64 by eight partial sums, in a fixed order."""
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
    """Share of the chroma that a channel lacks at a hue: see `jitter.shift_hue`."""
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
            for x in range(size):
                line[x] += padded[tap + x]
        for x in range(size):
            line[x] *= scale


@inner
def blur(image: Array, whole: Any, part: Any, before: Array) -> None:
    """Three box blurs along each axis of image [S, S]; before [S, S] is scratch."""
    size, reach = image.shape[0], int(whole)
    scale = ONE / (np.float32(2.0) * (whole + part) + ONE)
    padded = np.empty(size + 2 * reach + 2, np.float32)
    for source, target in ((image, before), (before, image)):  # columns, then lines
        for row in range(size):
            for x in range(size):
                target[row, x] = source[x, row]
        for _ in range(3):
            blur_lines(target, reach, part, padded, scale)


@inner
def change(operation: int, amounts: Array, image: Array, before: Array) -> None:
    """Apply one operation to image [C, S, S]; before [S, S] is scratch."""
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
    else:  # BLUR
        for channel in range(channels):
            blur(image[channel], amount, amounts[1], before)


@entry("int8[:, ::1], float32[:, :, ::1], int64, float32[:, :, :, ::1]")
def change_rows(operations: Array, amounts: Array, begin: int, views: Array) -> None:
    """Apply operations [B, T] with amounts [B, T, 2] of rows from `begin` on to views [n, C, S, S], in place."""
    size = views.shape[2]
    before = np.empty((size, size), np.float32)
    for number in range(views.shape[0]):
        row = begin + number
        for turn in range(operations.shape[1]):
            if operations[row, turn] >= 0:
                change(operations[row, turn], amounts[row, turn], views[number], before)

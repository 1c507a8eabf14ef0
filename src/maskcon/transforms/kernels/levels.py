"""PIL's 8-bit colour operations on single samples: the loops behind `maskcon.transforms.colour`, with the same results.

Levels are whole numbers 0..255 kept as float32, which the loops handle eight at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maskcon._utils.compilation import entry, inner

Array = Any  # numba's arrays of a fixed type; the signature below names each

# Numbers of the operations; anything below is none.
AUTOCONTRAST, EQUALIZE, INVERT, POSTERIZE, SOLARIZE, COLOR, BRIGHTNESS, CONTRAST, SHARPNESS = range(9)

ZERO, TOP = np.float32(0.0), np.float32(255.0)
# PIL's weights of red, green and blue in luma: whole numbers, whose sums float32 holds exactly.
RED, GREEN, BLUE, HALF_UNIT, UNIT = (np.float32(n) for n in (19595, 38470, 7471, 32768, 1 / 65536))


@inner
def blended(base: Any, level: Any, factor: Any) -> Any:
    """PIL's blend: base + factor * (level - base), cut to 0..255, fraction dropped."""
    return np.floor(min(max((level - base) * factor + base, ZERO), TOP))


@inner
def luma(red: Any, green: Any, blue: Any) -> Any:
    return np.floor((red * RED + green * GREEN + blue * BLUE + HALF_UNIT) * UNIT)


@inner
def autocontrast_table(keys: Array, table: Array) -> bool:
    """Stretch the levels of a channel, given as keys [P], to 0..255; False: nothing to do."""
    low, high = keys[0], keys[0]
    for pixel in range(keys.shape[0]):
        low, high = min(low, keys[pixel]), max(high, keys[pixel])
    if low == high:
        return False
    # PIL multiplies in doubles and drops the fraction: whole results may come out a hair below and lose a level
    scale = 255.0 / (float(high) - float(low))
    offset = -float(low) * scale
    for level in range(256):
        table[level] = np.float32(np.floor(min(max(level * scale + offset, 0.0), 255.0)))
    return True


@inner
def equalize_table(keys: Array, counts: Array, table: Array) -> bool:
    """Spread the levels of a channel, given as keys [P], by their counts [4, 256]; False: nothing to do."""
    counts[:] = 0
    whole = keys.shape[0] // 4 * 4
    for pixel in range(0, whole, 4):  # four counters, so that equal neighbours need not wait for each other
        counts[0, keys[pixel]] += 1
        counts[1, keys[pixel + 1]] += 1
        counts[2, keys[pixel + 2]] += 1
        counts[3, keys[pixel + 3]] += 1
    for pixel in range(whole, keys.shape[0]):
        counts[0, keys[pixel]] += 1
    for level in range(256):
        counts[0, level] += counts[1, level] + counts[2, level] + counts[3, level]
    below = 0
    for level in range(256):
        counts[1, level] = below
        below += counts[0, level]
    last = 255
    while counts[0, last] == 0:
        last -= 1
    step = counts[1, last] // 255  # all pixels but those of the highest level make 255 steps
    if step == 0:
        return False
    # float32 holds these whole numbers, and a quotient is never so close below the next whole one as to reach it
    first, divisor = np.float32(step // 2), np.float32(step)
    for level in range(256):
        table[level] = min(np.floor((np.float32(counts[1, level]) + first) / divisor), TOP)
    return True


@inner
def by_tables(operation: int, image: Array, keys: Array, counts: Array, table: Array) -> None:
    """Autocontrast and equalize of image [C, P]; keys [P] are scratch."""
    for channel in range(image.shape[0]):
        for pixel in range(image.shape[1]):
            keys[pixel] = np.uint32(np.int32(image[channel, pixel]))
        if operation == EQUALIZE:
            changed = equalize_table(keys, counts, table)
        else:
            changed = autocontrast_table(keys, table)
        if changed:
            for pixel in range(image.shape[1]):
                image[channel, pixel] = table[keys[pixel]]


@inner
def mean_luma(image: Array) -> Any:
    """floor(mean + .5) of the luma of image [C, P]."""
    total, count = np.int64(0), image.shape[1]
    for pixel in range(count):
        if image.shape[0] == 1:
            total += np.int64(image[0, pixel])
        else:
            total += np.int64(luma(image[0, pixel], image[1, pixel], image[2, pixel]))
    return np.float32((2 * total + count) // (2 * count))


@inner
def change_each(operation: int, amount: Any, image: Array) -> None:
    """The operations that look at one level only, on image [C, P]; contrast, at the mean of all too."""
    base = mean_luma(image) if operation == CONTRAST else ZERO  # brightness is a blend with black
    step = np.float32(1 << max(8 - int(amount), 0)) if operation == POSTERIZE else ZERO
    for channel in range(image.shape[0]):
        for pixel in range(image.shape[1]):
            level = image[channel, pixel]
            if operation == INVERT:
                level = TOP - level
            elif operation == POSTERIZE:
                level = np.floor(level / step) * step
            elif operation == SOLARIZE:
                level = level if level < amount else TOP - level
            else:
                level = blended(base, level, amount)
            image[channel, pixel] = level


@inner
def color(image: Array, factor: Any) -> None:
    for pixel in range(image.shape[1]):
        red, green, blue = image[0, pixel], image[1, pixel], image[2, pixel]
        grey = luma(red, green, blue)
        image[0, pixel] = blended(grey, red, factor)
        image[1, pixel] = blended(grey, green, factor)
        image[2, pixel] = blended(grey, blue, factor)


@inner
def sharpness(view: Array, factor: Any, before: Array, sums: Array) -> None:
    """view [C, S, S]; the outermost pixels stay. before [S, S] and sums [S] are scratch."""
    size = view.shape[1]
    for channel in range(view.shape[0]):
        for row in range(size):
            for column in range(size):
                before[row, column] = view[channel, row, column]
        for row in range(1, size - 1):
            for column in range(size):
                sums[column] = before[row - 1, column] + before[row, column] + before[row + 1, column]
            for column in range(1, size - 1):
                level = before[row, column]
                total = sums[column - 1] + sums[column] + sums[column + 1] + np.float32(4.0) * level
                smooth = np.floor((total + np.float32(6.5)) / np.float32(13.0))
                view[channel, row, column] = blended(smooth, level, factor)


@entry("int8[:, ::1], float32[:, :, ::1], int64, float32[:, :, :, ::1]")
def recolour_rows(operations: Array, amounts: Array, begin: int, views: Array) -> None:
    """Operations [B, T] with amounts [B, T, 4], of the rows from `begin` on, in turn on views [n, C, S, S] in place.

    Rows without an operation are not touched; others are rounded to whole levels first, as PIL has them.
    """
    channels, size = views.shape[1], views.shape[2]
    images = views.reshape(views.shape[0], channels, size * size)
    before, sums = np.empty((size, size), np.float32), np.empty(size, np.float32)
    keys, counts = np.empty(size * size, np.uint32), np.empty((4, 256), np.int32)
    table = np.empty(256, np.float32)
    for number in range(views.shape[0]):
        image, rounded = images[number], False
        for turn in range(operations.shape[1]):
            operation, amount = operations[begin + number, turn], amounts[begin + number, turn, 0]
            if operation < 0:
                continue
            if not rounded:
                rounded = True
                for channel in range(channels):
                    for pixel in range(size * size):
                        level = np.rint(image[channel, pixel])
                        level = (
                            level if level > ZERO else ZERO
                        )  # levels become places in tables: never outside
                        image[channel, pixel] = level if level < TOP else TOP
            if operation == COLOR:
                if channels == 3:
                    color(image, amount)
            elif operation == SHARPNESS:
                if size >= 3:
                    sharpness(views[number], amount, before, sums)
            elif operation in (AUTOCONTRAST, EQUALIZE):
                by_tables(operation, image, keys, counts, table)
            else:
                change_each(operation, amount, image)

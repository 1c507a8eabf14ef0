"""Crop, resize, mirror and warp of single samples: the loops behind `maskcon.views.resample`."""

from __future__ import annotations

from typing import Any

import numpy as np

from maskcon.views.kernels.compiling import entry, inner

Array = Any  # numba's arrays of a fixed type; the signature below names each

FLAT, WARPED, REDUCED = 0, 1, 2  # resized; warped from the image; resized, then warped

BLOCK = 32  # pixels

ZERO, HALF, ONE = np.float32(0.0), np.float32(0.5), np.float32(1.0)


@inner
def filter_taps(
    start: float, length: float, low: float, high: float, mirrored: bool, firsts: Array, counts: Array, taps: Array
) -> bool:  # fmt: skip
    """The triangle filter that resizes [start, start + length) to S values: see `resample.filter_places`.

    firsts, counts [S]: the pixels that a value is made of. taps [most taps, S]: their weights, which sum to 1.
    Returns whether every value has two taps, one of them perhaps of weight 0.
    """
    size = firsts.shape[0]
    scale = length / size
    reach = max(scale, 1.0)
    first_seen, last_seen = int(np.floor(low - 0.5)) + 1, int(np.ceil(high - 0.5)) - 1
    if scale <= 1.0 and last_seen > first_seen:
        for value in range(size):
            centre = (value + 0.5) * scale
            first = min(max(int(np.floor(start + centre - 0.5)), first_seen), last_seen - 1)
            near = max(ONE - abs(np.float32(first + 0.5 - start) - np.float32(centre)), ZERO)
            far = max(ONE - abs(np.float32(first + 1.5 - start) - np.float32(centre)), ZERO)
            place = size - 1 - value if mirrored else value
            firsts[place], counts[place] = first, 2
            taps[0, place], taps[1, place] = near / (near + far), far / (near + far)
        return True
    for value in range(size):
        middle = start + (value + 0.5) * scale
        centre_share = np.float32((value + 0.5) * (scale / reach))
        first = max(first_seen, int(np.floor(middle - reach - 0.5)))
        last = min(last_seen, int(np.ceil(middle + reach - 0.5)))
        place = size - 1 - value if mirrored else value
        count, total = 0, ZERO
        for pixel in range(first, last + 1):
            weight = ONE - abs(np.float32((pixel + 0.5 - start) / reach) - centre_share)
            if weight > ZERO:
                if count == 0:
                    firsts[place] = pixel
                taps[count, place] = weight
                total += weight
                count += 1
        counts[place] = count
        for tap in range(count):
            taps[tap, place] /= total
    return False


@inner
def enlarge(
    images: Array, number: int, row_firsts: Array, row_near: Array, row_far: Array, firsts: Array, near: Array,
    far: Array, bounds: Array, some: Array, lines: Array, views: Array, place: int,
) -> None:  # fmt: skip
    """images [B, C, H, W] at `number` -> views [n, C, S, S] at `place`, by two taps a value along either axis.

    bounds [4]: rows and columns that may be seen. some [4, W] and lines [H + 3, S] are scratch.
    """
    size, width = views.shape[2], images.shape[3]
    top, bottom, left, right = int(bounds[0]), int(bounds[1]), int(bounds[2]), int(bounds[3])
    # Lines are converted by whole blocks, as far as they go: a loop of a known length has no slow rest.
    left, right = left // BLOCK * BLOCK, min((right + BLOCK - 1) // BLOCK * BLOCK, width)
    for channel in range(images.shape[1]):
        for y in range(top, bottom, 4):  # four lines share their taps; those beyond the last repeat it
            for part in range(4):
                line = min(y + part, bottom - 1)
                for start in range(left, right - BLOCK + 1, BLOCK):
                    for x in range(BLOCK):
                        some[part, start + x] = np.float32(images[number, channel, line, start + x])
                for x in range(max(right // BLOCK * BLOCK, left), right):
                    some[part, x] = np.float32(images[number, channel, line, x])
            for column in range(size):
                first, here, beyond = firsts[column], near[column], far[column]
                lines[y, column] = here * some[0, first] + beyond * some[0, first + 1]
                lines[y + 1, column] = here * some[1, first] + beyond * some[1, first + 1]
                lines[y + 2, column] = here * some[2, first] + beyond * some[2, first + 1]
                lines[y + 3, column] = here * some[3, first] + beyond * some[3, first + 1]
        for row in range(size):
            first, here, beyond = row_firsts[row], row_near[row], row_far[row]
            for column in range(size):
                value = here * lines[first, column] + beyond * lines[first + 1, column]
                views[place, channel, row, column] = value


@inner
def resize(
    images: Array, number: int, row_firsts: Array, row_counts: Array, row_taps: Array, firsts: Array, counts: Array,
    taps: Array, bounds: Array, some: Array, lines: Array, views: Array, place: int,
) -> None:  # fmt: skip
    """The same by any number of taps, `counts` for each value."""
    size = views.shape[2]
    top, bottom, left, right = int(bounds[0]), int(bounds[1]), int(bounds[2]), int(bounds[3])
    for channel in range(images.shape[1]):
        for y in range(top, bottom):
            for x in range(left, right):
                some[0, x] = np.float32(images[number, channel, y, x])
            for column in range(size):
                first, total = firsts[column], ZERO
                for tap in range(counts[column]):
                    total += taps[tap, column] * some[0, first + tap]
                lines[y, column] = total
        for row in range(size):
            first, weight = row_firsts[row], row_taps[0, row]
            for column in range(size):
                views[place, channel, row, column] = weight * lines[first, column]
            for tap in range(1, row_counts[row]):
                weight = row_taps[tap, row]
                for column in range(size):
                    views[place, channel, row, column] += weight * lines[first + tap, column]


@inner
def warp(
    pixels: Array, height: int, width: int, at: Array, mirrored: bool, matrices: Array, projective: bool, fill: float,
    places: Array, firsts: Array, weights: Array, view: Array,
) -> None:  # fmt: skip
    """Bilinear taps of pixels [C, H*W and more] for each pixel of view [C, S, S]: see `resample.warp_view`.

    at [8]: the placement. matrices [T, 3, 3]. fill: a level, or NaN to repeat the edge.
    places [3, S], firsts [S] and weights [4, S] are scratch.
    """
    size, side = view.shape[1], np.float32(view.shape[1])
    level, filled = np.float32(fill), not np.isnan(fill)
    start_x = np.float32(at[1] + at[3]) if mirrored else np.float32(at[1])
    scale_x = np.float32(-at[3] / size) if mirrored else np.float32(at[3] / size)
    start_y, scale_y = np.float32(at[0]), np.float32(at[2] / size)
    # The margins are the tensor code's, which needs them against the rounding of grid_sample.
    low_y, high_y = np.float32(at[4]) + HALF, np.float32(at[5]) - np.float32(0.5 + 4e-7 * height)
    low_x, high_x = np.float32(at[6]) + HALF, np.float32(at[7]) - np.float32(0.5 + 4e-7 * width)
    step = np.int32(width)
    for row in range(size):
        for column in range(size):
            places[0, column] = np.float32(column) + HALF
            places[1, column] = np.float32(row) + HALF
            places[2, column] = ONE  # 0: outside
        for turn in range(matrices.shape[0] - 1, -1, -1):  # the last map done is the first to be undone
            a, b, c = matrices[turn, 0, 0], matrices[turn, 0, 1], matrices[turn, 0, 2]
            d, e, f = matrices[turn, 1, 0], matrices[turn, 1, 1], matrices[turn, 1, 2]
            g, h, i = matrices[turn, 2, 0], matrices[turn, 2, 1], matrices[turn, 2, 2]
            for column in range(size):
                x, y = places[0, column], places[1, column]
                depth = g * x + h * y + i if projective else ONE
                new_x, new_y = (a * x + b * y + c) / depth, (d * x + e * y + f) / depth
                here = (new_x >= ZERO) & (new_x < side) & (new_y >= ZERO) & (new_y < side)
                places[2, column] = places[2, column] if here else ZERO
                places[0, column], places[1, column] = new_x, new_y
        for column in range(size):
            x, y = places[0, column] * scale_x + start_x, places[1, column] * scale_y + start_y
            # written out, for a NaN (a point at infinity) has to end inside the image too
            x, y = x if x < high_x else high_x, y if y < high_y else high_y
            x, y = (x if x > low_x else low_x) - HALF, (y if y > low_y else low_y) - HALF
            left, top = np.int32(x), np.int32(y)
            firsts[column] = np.uint32(top * step + left)
            part_x, part_y = x - np.float32(left), y - np.float32(top)
            weights[0, column], weights[1, column] = (ONE - part_x) * (ONE - part_y), part_x * (ONE - part_y)
            weights[2, column], weights[3, column] = (ONE - part_x) * part_y, part_x * part_y
        for channel in range(view.shape[0]):
            for column in range(size):
                first = firsts[column]
                view[channel, row, column] = (
                    pixels[channel, first] * weights[0, column]
                    + pixels[channel, first + 1] * weights[1, column]
                    + pixels[channel, first + width] * weights[2, column]
                    + pixels[channel, first + width + 1] * weights[3, column]
                )
            if filled:
                for column in range(size):
                    value = view[channel, row, column]
                    view[channel, row, column] = value if places[2, column] > ZERO else level


@entry(
    "void(uint8[:, :, :, ::1], float64[:, ::1], boolean[::1], uint8[::1], float32[:, :, :, ::1], boolean, float64, "
    "int64, float32[:, :, :, ::1])"
)
def resample_rows(
    images: Array,
    placements: Array,
    mirrored: Array,
    kinds: Array,
    matrices: Array,
    projective: bool,
    fill: float,
    begin: int,
    views: Array,
) -> None:
    """The rows from `begin` on of a batch, into views [n, C, S, S] on 0..255.

    images [B, C, H, W]. placements [B, 8]: the fields of a `Placement`. kinds [B]: FLAT, WARPED or REDUCED.
    matrices [B, T, 3, 3], projective and fill (NaN: repeat the edge): those of a `Warp`.
    """
    channels, height, width, size = images.shape[1], images.shape[2], images.shape[3], views.shape[2]
    most = int(2 * max(1.0, max(height, width) / size)) + 4
    row_firsts, row_counts = np.zeros(size, np.uint32), np.zeros(size, np.uint32)
    firsts, counts = np.zeros(size, np.uint32), np.zeros(size, np.uint32)
    row_taps, taps = np.zeros((most, size), np.float32), np.zeros((most, size), np.float32)
    some, lines = np.zeros((4, width), np.float32), np.zeros((height + 3, size), np.float32)
    places, corners, weights = (
        np.zeros((3, size), np.float32),
        np.zeros(size, np.uint32),
        np.zeros((4, size), np.float32),
    )
    # Beyond the last pixel there are zeros: they are read, with a weight of 0.
    stored = np.zeros((channels, (height + 1) * width + 2), np.float32)
    reduced = np.zeros((1, channels, size, size), np.float32)
    shrunk = np.zeros((channels, (size + 1) * size + 2), np.float32)
    whole = np.array([0.0, 0.0, size, size, 0.0, size, 0.0, size])
    for number in range(views.shape[0]):
        row = begin + number
        at, kind = placements[row], kinds[row]
        if kind == WARPED:
            for channel in range(channels):
                for y in range(int(at[4]), int(at[5])):
                    for x in range(int(at[6]), int(at[7])):
                        stored[channel, y * width + x] = np.float32(images[row, channel, y, x])
            warp(
                stored, height, width, at, mirrored[row], matrices[row], projective, fill, places, corners, weights,
                views[number],
            )  # fmt: skip
            continue
        plain = filter_taps(at[0], at[2], at[4], at[5], False, row_firsts, row_counts, row_taps)
        plain = filter_taps(at[1], at[3], at[6], at[7], mirrored[row], firsts, counts, taps) and plain
        target, place = (reduced, 0) if kind == REDUCED else (views, number)
        if plain:
            enlarge(
                images, row, row_firsts, row_taps[0], row_taps[1], firsts, taps[0], taps[1], at[4:], some, lines,
                target, place,
            )  # fmt: skip
        else:
            resize(
                images, row, row_firsts, row_counts, row_taps, firsts, counts, taps, at[4:], some, lines, target,
                place,
            )  # fmt: skip
        if kind == REDUCED:
            for channel in range(channels):
                for pixel in range(size * size):
                    shrunk[channel, pixel] = reduced[0, channel, pixel // size, pixel % size]
            warp(
                shrunk, size, size, whole, False, matrices[row], projective, fill, places, corners, weights,
                views[number],
            )  # fmt: skip

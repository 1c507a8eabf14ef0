"""Crop, resize, mirror and warp of single images: see `maskcon.transforms.resample`."""

from __future__ import annotations

from typing import Any

import numpy as np

from maskcon.transforms.kernels import entry, inner

Array = Any  # numba's arrays of a fixed type; the signature below names each

FLAT, WARPED, REDUCED = 0, 1, 2  # resized; warped from the image; resized, then warped

BLOCK = 32  # pixels of a line that are converted in one go
STRIP = 1024  # values of a view that are warped in one go

ZERO, HALF, ONE = np.float32(0.0), np.float32(0.5), np.float32(1.0)


@inner
def filter_taps(
    start: float, length: float, low: float, high: float, mirrored: bool, firsts: Array, counts: Array, taps: Array
) -> None:  # fmt: skip
    """The triangle filter that resizes [start, start + length) to S values: see `resample.filter_places`.

    firsts, counts [S]: the pixels of each value. taps [most taps, S]: their weights, which sum to 1.
    """
    size = firsts.shape[0]
    scale = length / size
    reach = max(scale, 1.0)
    first_seen, last_seen = int(np.floor(low - 0.5)) + 1, int(np.ceil(high - 0.5)) - 1
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


@inner
def to_floats(images: Array, number: int, bounds: Array, pixels: Array) -> None:
    """The part of images [B, C, H, W] at `number` within bounds, and perhaps some beside it: pixels [C, H*W and more].

    By whole blocks as far as the lines go: a loop of a known length has no slow rest.
    """
    width = images.shape[3]
    left, right = int(bounds[2]) // BLOCK * BLOCK, min(int(bounds[3] + BLOCK - 1) // BLOCK * BLOCK, width)
    for channel in range(images.shape[1]):
        for y in range(int(bounds[0]), int(bounds[1])):
            line = pixels[channel, y * width : (y + 1) * width]
            for start in range(left, right - BLOCK + 1, BLOCK):
                for x in range(BLOCK):
                    line[start + x] = np.float32(images[number, channel, y, start + x])
            for x in range(max(right // BLOCK * BLOCK, left), right):
                line[x] = np.float32(images[number, channel, y, x])


@inner
def resize(
    images: Array, number: int, row_firsts: Array, row_counts: Array, row_taps: Array, firsts: Array, counts: Array,
    taps: Array, bounds: Array, some: Array, lines: Array, views: Array, place: int,
) -> None:  # fmt: skip
    """images [B, C, H, W] at `number` -> views [n, C, S, S] at `place`.

    bounds [4]: rows and columns that may be seen. some [W] and lines [H, S] are scratch.
    """
    size = views.shape[2]
    top, bottom, left, right = int(bounds[0]), int(bounds[1]), int(bounds[2]), int(bounds[3])
    for channel in range(images.shape[1]):
        for y in range(top, bottom):
            for x in range(left, right):
                some[x] = np.float32(images[number, channel, y, x])
            for column in range(size):
                first, total = firsts[column], ZERO
                for tap in range(counts[column]):
                    total += taps[tap, column] * some[first + tap]
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
def into_image(places: Array, count: int, scale: Any, start: Any, low: Any, high: Any) -> None:
    """Places in the view -> places in the image, counted from the middle of its first pixel, along one axis."""
    for n in range(count):
        place = places[n] * scale + start
        place = place if place < high else high  # so a NaN, a point at infinity, ends inside the image too
        places[n] = (place if place > low else low) - HALF


@inner
def warp(
    pixels: Array, height: int, width: int, at: Array, mirrored: bool, matrices: Array, projective: bool, fill: float,
    grid: Array, places: Array, firsts: Array, weights: Array, size: int, view: Array,
) -> None:  # fmt: skip
    """Bilinear taps of pixels [C, H*W and more] for each value of view [C, size*size]: see `resample.warp_view`.

    at [8]: the placement. matrices [T, 3, 3]. fill: a level, or NaN to repeat the edge.
    grid [2, n]: x and y of the first rows of the view, of as many as are worked off together.
    places [3, n], firsts [n] and weights [4, n] are scratch.
    """
    side = np.float32(size)
    level, filled = np.float32(fill), not np.isnan(fill)
    start_x = np.float32(at[1] + at[3]) if mirrored else np.float32(at[1])
    scale_x = np.float32(-at[3] / size) if mirrored else np.float32(at[3] / size)
    start_y, scale_y = np.float32(at[0]), np.float32(at[2] / size)
    # The margins are the tensor code's, which needs them against the rounding of grid_sample.
    low_y, high_y = np.float32(at[4]) + HALF, np.float32(at[5]) - np.float32(0.5 + 4e-7 * height)
    low_x, high_x = np.float32(at[6]) + HALF, np.float32(at[7]) - np.float32(0.5 + 4e-7 * width)
    step = np.int32(width)
    xs, ys, inside = places[0], places[1], places[2]
    for begin in range(0, size * size, firsts.shape[0]):
        count = min(firsts.shape[0], size * size - begin)
        first_row = np.float32(begin // size)
        for n in range(count):
            xs[n] = grid[0, n]
        for n in range(count):
            ys[n] = grid[1, n] + first_row
        for n in range(count):
            inside[n] = ONE  # or 0
        for turn in range(matrices.shape[0] - 1, -1, -1):  # the last map done is the first to be undone
            a, b, c = matrices[turn, 0, 0], matrices[turn, 0, 1], matrices[turn, 0, 2]
            d, e, f = matrices[turn, 1, 0], matrices[turn, 1, 1], matrices[turn, 1, 2]
            g, h, i = matrices[turn, 2, 0], matrices[turn, 2, 1], matrices[turn, 2, 2]
            for n in range(count):
                x, y = xs[n], ys[n]
                depth = g * x + h * y + i if projective else ONE
                new_x, new_y = (a * x + b * y + c) / depth, (d * x + e * y + f) / depth
                here = (new_x >= ZERO) & (new_x < side) & (new_y >= ZERO) & (new_y < side)
                inside[n] = inside[n] if here else ZERO
                xs[n], ys[n] = new_x, new_y
        # Loops that write one array each: those with more are not vectorised, for the arrays might overlap.
        into_image(xs, count, scale_x, start_x, low_x, high_x)
        into_image(ys, count, scale_y, start_y, low_y, high_y)
        for n in range(count):
            firsts[n] = np.uint32(np.int32(ys[n]) * step + np.int32(xs[n]))
        for n in range(count):
            xs[n] -= np.float32(np.int32(xs[n]))
        for n in range(count):
            ys[n] -= np.float32(np.int32(ys[n]))
        for n in range(count):
            weights[0, n] = (ONE - xs[n]) * (ONE - ys[n])
        for n in range(count):
            weights[1, n] = xs[n] * (ONE - ys[n])
        for n in range(count):
            weights[2, n] = (ONE - xs[n]) * ys[n]
        for n in range(count):
            weights[3, n] = xs[n] * ys[n]
        if not filled:
            for n in range(count):
                inside[n] = ONE
        for channel in range(view.shape[0]):
            for n in range(count):
                first = firsts[n]
                value = (
                    pixels[channel, first] * weights[0, n]
                    + pixels[channel, first + 1] * weights[1, n]
                    + pixels[channel, first + width] * weights[2, n]
                    + pixels[channel, first + width + 1] * weights[3, n]
                )
                view[channel, begin + n] = value if inside[n] > ZERO else level


@entry(
    "uint8[:, :, :, ::1], float64[:, ::1], boolean[::1], uint8[::1], float32[:, :, :, ::1], boolean, float64, "
    "int64, float32[:, :, :, ::1]"
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
    some, lines = np.zeros(width, np.float32), np.zeros((height, size), np.float32)
    together = size * max(1, STRIP // size)
    places, corners = np.zeros((3, together), np.float32), np.zeros(together, np.uint32)
    weights = np.zeros((4, together), np.float32)
    grid = np.zeros((2, together), np.float32)
    for value in range(together):
        grid[0, value], grid[1, value] = np.float32(value % size) + HALF, np.float32(value // size) + HALF
    flat = views.reshape(views.shape[0], channels, size * size)
    # Beyond the last pixel there are zeros: they are read, with a weight of 0.
    stored = np.zeros((channels, (height + 1) * width + 2), np.float32)
    reduced = np.zeros((1, channels, size, size), np.float32)
    shrunk = np.zeros((channels, (size + 1) * size + 2), np.float32)
    whole = np.array([0.0, 0.0, size, size, 0.0, size, 0.0, size])
    for number in range(views.shape[0]):
        row = begin + number
        at, kind = placements[row], kinds[row]
        if kind == WARPED:
            to_floats(images, row, at[4:], stored)
            warp(
                stored, height, width, at, mirrored[row], matrices[row], projective, fill, grid, places, corners,
                weights, size, flat[number],
            )  # fmt: skip
            continue
        filter_taps(at[0], at[2], at[4], at[5], False, row_firsts, row_counts, row_taps)
        filter_taps(at[1], at[3], at[6], at[7], mirrored[row], firsts, counts, taps)
        target, place = (reduced, 0) if kind == REDUCED else (views, number)
        resize(
            images, row, row_firsts, row_counts, row_taps, firsts, counts, taps, at[4:], some, lines, target, place
        )  # fmt: skip
        if kind == REDUCED:
            for channel in range(channels):
                for pixel in range(size * size):
                    shrunk[channel, pixel] = reduced[0, channel, pixel // size, pixel % size]
            warp(
                shrunk, size, size, whole, False, matrices[row], projective, fill, grid, places, corners,
                weights, size, flat[number],
            )  # fmt: skip

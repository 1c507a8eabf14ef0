"""Crop, resize, mirror and warp of single images: see `maskcon.transforms.resample`."""

from __future__ import annotations

from typing import Any

import numpy as np

from maskcon.transforms.kernels import entry, inner

Array = Any  # numba's arrays of a fixed type; the signature below names each

FLAT, WARPED, REDUCED = 0, 1, 2  # resized; warped from the image; resized, then warped

ZERO, HALF, ONE = np.float32(0.0), np.float32(0.5), np.float32(1.0)


@inner
def filter_taps(
    start: float, length: float, low: float, high: float, mirrored: bool, firsts: Array, counts: Array, taps: Array
) -> None:  # fmt: skip
    """Compute the triangle filter that resizes [start, start + length) to S values: see `resample.filter_places`.

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
def resize(
    images: Array, number: int, row_firsts: Array, row_counts: Array, row_taps: Array, firsts: Array, counts: Array,
    taps: Array, bounds: Array, some: Array, lines: Array, views: Array, place: int,
) -> None:  # fmt: skip
    """Resize images [B, C, H, W] at `number` into views [n, C, S, S] at `place`.

    bounds [4]: visible rows and columns. some [W] and lines [H, S] are scratch.
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
def place_in_image(place: Any, scale: Any, start: Any, low: Any, high: Any) -> Any:
    """Map a place in the view to the image, from the middle of its first pixel, along one axis."""
    place = place * scale + start
    place = place if place < high else high  # so a NaN, a point at infinity, ends inside the image too
    return (place if place > low else low) - HALF


@inner
def warp(
    images: Array, number: int, at: Array, mirrored: bool, matrices: Array, projective: bool, fill: float, view: Array
) -> None:  # fmt: skip
    """Sample images bilinearly: images [B, C, H, W] at `number` for view [C, S, S]: see `resample.warp_view`.

    at [8]: the placement. matrices [T, 3, 3]. fill: a level, or NaN to repeat the edge.
    """
    channels, height, width, size = view.shape[0], images.shape[2], images.shape[3], view.shape[1]
    side = np.float32(size)
    level, filled = np.float32(fill), not np.isnan(fill)
    start_x = np.float32(at[1] + at[3]) if mirrored else np.float32(at[1])
    scale_x = np.float32(-at[3] / size) if mirrored else np.float32(at[3] / size)
    start_y, scale_y = np.float32(at[0]), np.float32(at[2] / size)
    # The margins are the tensor code's, which needs them against the rounding of grid_sample.
    low_y, high_y = np.float32(at[4]) + HALF, np.float32(at[5]) - np.float32(0.5 + 4e-7 * height)
    low_x, high_x = np.float32(at[6]) + HALF, np.float32(at[7]) - np.float32(0.5 + 4e-7 * width)
    for row in range(size):
        for column in range(size):
            x, y, inside = np.float32(column) + HALF, np.float32(row) + HALF, True
            for turn in range(matrices.shape[0] - 1, -1, -1):  # the last map done is the first to be undone
                m = matrices[turn]
                depth = m[2, 0] * x + m[2, 1] * y + m[2, 2] if projective else ONE
                new_x = (m[0, 0] * x + m[0, 1] * y + m[0, 2]) / depth
                new_y = (m[1, 0] * x + m[1, 1] * y + m[1, 2]) / depth
                inside &= (new_x >= ZERO) & (new_x < side) & (new_y >= ZERO) & (new_y < side)
                x, y = new_x, new_y
            if filled and not inside:
                for channel in range(channels):
                    view[channel, row, column] = level
                continue
            x = place_in_image(x, scale_x, start_x, low_x, high_x)
            y = place_in_image(y, scale_y, start_y, low_y, high_y)
            left, top = np.int32(x), np.int32(y)
            right, below = min(left + 1, width - 1), min(top + 1, height - 1)
            x -= np.float32(left)
            y -= np.float32(top)
            weight, weight_right = (ONE - x) * (ONE - y), x * (ONE - y)
            weight_below, weight_both = (ONE - x) * y, x * y
            for channel in range(channels):
                view[channel, row, column] = (
                    np.float32(images[number, channel, top, left]) * weight
                    + np.float32(images[number, channel, top, right]) * weight_right
                    + np.float32(images[number, channel, below, left]) * weight_below
                    + np.float32(images[number, channel, below, right]) * weight_both
                )


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
    """Make the views of the rows from `begin` on of a batch: views [n, C, S, S] on 0..255.

    images [B, C, H, W]. placements [B, 8]: the fields of a `Placement`. kinds [B]: FLAT, WARPED or REDUCED.
    matrices [B, T, 3, 3], projective and fill (NaN: repeat the edge): those of a `Warp`.
    """
    channels, height, width, size = images.shape[1], images.shape[2], images.shape[3], views.shape[2]
    most = int(2 * max(1.0, max(height, width) / size)) + 4
    row_firsts, row_counts = np.zeros(size, np.uint32), np.zeros(size, np.uint32)
    firsts, counts = np.zeros(size, np.uint32), np.zeros(size, np.uint32)
    row_taps, taps = np.zeros((most, size), np.float32), np.zeros((most, size), np.float32)
    some, lines = np.zeros(width, np.float32), np.zeros((height, size), np.float32)
    reduced = np.zeros((1, channels, size, size), np.float32)
    whole = np.array([0.0, 0.0, size, size, 0.0, size, 0.0, size])
    for number in range(views.shape[0]):
        row = begin + number
        at, kind = placements[row], kinds[row]
        if kind == WARPED:
            warp(images, row, at, mirrored[row], matrices[row], projective, fill, views[number])
            continue
        filter_taps(at[0], at[2], at[4], at[5], False, row_firsts, row_counts, row_taps)
        filter_taps(at[1], at[3], at[6], at[7], mirrored[row], firsts, counts, taps)
        target, place = (reduced, 0) if kind == REDUCED else (views, number)
        resize(
            images, row, row_firsts, row_counts, row_taps, firsts, counts, taps, at[4:], some, lines, target, place
        )  # fmt: skip
        if kind == REDUCED:
            warp(reduced, 0, whole, False, matrices[row], projective, fill, views[number])

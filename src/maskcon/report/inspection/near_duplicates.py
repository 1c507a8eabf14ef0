"""Find near-duplicates by a 64-bit perceptual hash, searched exactly, and confirm them by colour.

hash -> pairs within a few bits -> pairs whose colours agree too -> groups. A mirrored or strongly cropped copy does not
count as a duplicate.

Letters in shapes: N images, P pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from maskcon.report.style import as_pixels

HASH_SIDE = 32  # side of the grey image that is hashed
FREQUENCIES = 11  # per axis of the cosine transform; the 64 lowest after the first make the hash
HASH_BITS = 64
RADIUS = 5  # bits in which near-duplicates may differ
TINY_SIDE = 16  # side of the colour image that confirms a pair
LARGEST_DIFFERENCE = 16.0  # root mean squared difference of these pixels in 0..255, without mean brightness
LARGEST_SHARE = (
    0.25  # of that difference in the images' own deviation: two dark shirts on black are not duplicates
)
LEAST_CONTRAST = 4.0  # standard deviation of the grey pixels; images below have nothing to compare
MOST_PAIRS = 2_000_000
CONFIRM_ROWS = 4096  # pairs compared together: 12 MB per array of their colours


def compared_by(pixels: NDArray[np.uint8]) -> tuple[int | None, NDArray[np.uint8]]:
    """Return the hash of an image [C, h, w], None without contrast, and its tiny colour version [3, 16, 16]."""
    image = Image.fromarray(as_pixels(pixels))
    grey = np.asarray(image.convert("L").resize((HASH_SIDE, HASH_SIDE), Image.Resampling.BILINEAR))
    tiny = np.asarray(image.resize((TINY_SIDE, TINY_SIDE), Image.Resampling.BILINEAR))
    hashed = image_hash(grey) if has_contrast(grey) else None
    return hashed, np.ascontiguousarray(tiny.transpose(2, 0, 1))


def image_hash(grey: NDArray[np.uint8]) -> int:
    """Hash a grey image [32, 32] by 64 signs of its lowest frequencies; robust to size, JPEG and brightness."""
    from scipy.fft import dctn

    signs = dctn(grey.astype(np.float32))[_lowest()] > 0  # [64]
    return int.from_bytes(np.packbits(signs).tobytes(), "big")


def has_contrast(grey: NDArray[np.uint8]) -> bool:
    """Whether an image has enough contrast for its hash to mean anything."""
    return float(grey.std()) >= LEAST_CONTRAST


def near_pairs(hashes: NDArray[np.uint64], radius: int = RADIUS) -> tuple[NDArray[np.int64], bool]:
    """Find all pairs (i < j) of hashes [N] that differ in at most `radius` bits: [P, 2], and whether too many exist.

    Exact: of radius + 1 blocks of bits, a pair agrees in at least one. So for each block only hashes with the same
    value there are compared; every pair is counted in the first block in which it agrees.

    >>> near_pairs(np.array([0b1111, 0b1011, 2**63], dtype=np.uint64), radius=1)[0].tolist()
    [[0, 1]]
    """
    blocks = _blocks(radius + 1)
    found: list[NDArray[np.int64]] = []
    count = 0
    for number, block in enumerate(blocks):
        keys = hashes & block  # [N]
        order = np.argsort(keys, kind="stable")
        ordered, sorted_keys = hashes[order], keys[order]
        alive = np.arange(len(hashes) - 1) if len(hashes) else np.empty(0, dtype=np.int64)
        for shift in range(1, len(hashes)):
            alive = alive[alive + shift < len(hashes)]
            alive = alive[sorted_keys[alive] == sorted_keys[alive + shift]]
            if not len(alive):
                break
            difference = ordered[alive] ^ ordered[alive + shift]
            near = np.bitwise_count(difference) <= radius
            for earlier in blocks[:number]:
                near &= (difference & earlier) != 0  # else it was found in that block
            if near.any():
                pairs = np.stack([order[alive[near]], order[alive[near] + shift]], axis=1)
                found.append(np.sort(pairs, axis=1))
                count += len(pairs)
                if count > MOST_PAIRS:
                    return np.concatenate(found)[:MOST_PAIRS], True
    pairs = np.concatenate(found) if found else np.empty((0, 2), dtype=np.int64)
    return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))], False


def confirmed(pairs: NDArray[np.int64], tiny: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Keep the pairs [P, 2] whose colours agree; tiny: [N, 3, 16, 16]."""
    agreeing = []
    for start in range(0, len(pairs), CONFIRM_ROWS):
        part = pairs[start : start + CONFIRM_ROWS]
        first, second = (tiny[part[:, side]].reshape(len(part), -1).astype(np.float32) for side in (0, 1))
        # a copy may be brighter as a whole; one in another colour is another image
        difference = (first - first.mean(1, keepdims=True)) - (second - second.mean(1, keepdims=True))
        apart = np.sqrt((difference**2).mean(1))  # [P]
        contrast = np.minimum(first.std(1), second.std(1))
        agreeing.append(part[apart <= np.minimum(LARGEST_DIFFERENCE, LARGEST_SHARE * contrast)])
    return np.concatenate(agreeing) if agreeing else pairs


def groups_of(pairs: Sequence[tuple[int, int]] | NDArray[np.int64]) -> list[tuple[int, ...]]:
    """Group rows linked by pairs, directly or through others; each group ascending, ordered by its first.

    >>> groups_of([(4, 7), (1, 2), (2, 9)])
    [(1, 2, 9), (4, 7)]
    """
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    rows, places = np.unique(np.asarray(pairs, dtype=np.int64).reshape(-1, 2), return_inverse=True)
    first, second = places.reshape(-1, 2).T
    links = coo_matrix((np.ones(len(first)), (first, second)), shape=(len(rows), len(rows)))
    _, group_of = connected_components(links, directed=False)
    members: dict[int, list[int]] = {}
    for row, group in zip(rows.tolist(), group_of.tolist(), strict=True):
        members.setdefault(group, []).append(row)
    return [tuple(found) for found in members.values()]


@cache
def _lowest() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the places of the 64 lowest frequencies except the mean, low ones first."""
    places = sorted(
        (across + down, across, down) for across in range(FREQUENCIES) for down in range(FREQUENCIES)
    )[1 : HASH_BITS + 1]
    return np.array([place[1] for place in places]), np.array([place[2] for place in places])


@cache
def _blocks(count: int) -> tuple[np.uint64, ...]:
    """Split the 64 bits into interleaved masks, so that each has low and high frequencies."""
    return tuple(np.uint64(sum(1 << bit for bit in range(start, HASH_BITS, count))) for start in range(count))

"""Find exact nearest neighbours by cosine, in bounded memory.

Stored vectors may be a memory map. Letters in shapes: N stored vectors, D their length, Q queries.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import UsageError

BLOCK_ELEMENTS = 1 << 24  # similarities held at once: 64 MB of float32
RESCORE_ROWS = 4096  # rows converted to float64 at a time
ROUNDING = 2.0**-24  # of one float32 operation


def unit_rows(vectors: NDArray[np.floating]) -> NDArray[np.float32]:
    """Scale rows [N, D] to length 1; rows of zeros stay, NaN and Inf are refused.

    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    wide = np.asarray(vectors, dtype=np.float64)
    bad = np.flatnonzero(~np.isfinite(wide).all(axis=1))
    if len(bad):
        raise UsageError(
            f"embedding {bad[0]} of {len(wide)} is not finite; train the encoder again with a lower learning_rate"
        )
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    return (wide / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)


def make_unit_rows(vectors: NDArray[np.float32]) -> None:
    """Scale rows [N, D] to length 1 in place, as `unit_rows` does."""
    for start in range(0, len(vectors), RESCORE_ROWS):
        vectors[start : start + RESCORE_ROWS] = unit_rows(vectors[start : start + RESCORE_ROWS])


def nearest(
    vectors: NDArray[np.float32],
    queries: NDArray[np.float32],
    k: int,
    among: NDArray[np.bool_] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Find the k nearest of unit vectors [N, D] to each of the queries [Q, D].

    One float32 product finds all candidates; these are scored again in float64, row by row, so that equal vectors
    get equal scores wherever they are stored.

    Args:
        among: [N] which M of the vectors may be found; None: all, M = N.

    Returns:
        Positions and cosines, each [Q, min(k, M)], best first, ties by position.

    >>> stored = np.array([[1, 0], [0, 1], [1, 0]], dtype=np.float32)
    >>> nearest(stored, stored[:1], k=2)[0]
    array([[0, 2]])
    """
    if k < 1:
        raise UsageError(f"k must be at least 1, got {k}")
    stored = np.asarray(vectors)  # a plain view: slicing the memmap subclass is slow
    if queries.ndim != 2 or stored.ndim != 2 or queries.shape[1] != stored.shape[1]:
        raise UsageError(f"queries {list(queries.shape)} do not fit vectors {list(stored.shape)}")
    count, dimension = stored.shape
    k = min(k, count if among is None else int(among.sum()))
    positions = np.empty((len(queries), k), dtype=np.int64)
    scores = np.empty((len(queries), k), dtype=np.float64)
    if k == 0:
        return positions, scores
    margin = 2 * (dimension + 2) * ROUNDING  # twice the largest error of a product of unit vectors
    step = max(1, BLOCK_ELEMENTS // count)
    for start in range(0, len(queries), step):
        part = np.ascontiguousarray(queries[start : start + step], dtype=np.float32)
        rough = part @ stored.T  # [part, N]
        if among is not None:
            rough[:, ~among] = -np.inf
        for row, similarity in enumerate(rough, start):
            kth = np.partition(similarity, count - k)[count - k]
            candidates = np.flatnonzero(similarity >= kth - margin)
            positions[row], scores[row] = best_of(stored, queries[row], candidates, k)
    return positions, scores


def nearest_others(
    vectors: NDArray[np.float32], rows: NDArray[np.int64], k: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Find the k nearest others of some rows of unit vectors [N, D].

    Each row is left out of its own answer by position, so exact duplicates are found.

    Returns:
        Positions and cosines, each [len(rows), min(k, N - 1)], best first.

    >>> nearest_others(unit_rows(np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])), np.array([0]), k=2)[0]
    array([[1, 2]])
    """
    k = max(0, min(k, len(vectors) - 1))
    if k == 0 or len(rows) == 0:
        return np.zeros((len(rows), k), dtype=np.int64), np.zeros((len(rows), k))
    positions, cosines = nearest(vectors, vectors[rows], k + 1)
    own = positions == rows[:, None]
    own[~own.any(axis=1), -1] = True  # among more than k equal vectors the row itself may be missing
    return positions[~own].reshape(-1, k), cosines[~own].reshape(-1, k)


def best_of(
    stored: NDArray[np.float32], query: NDArray[np.float32], candidates: NDArray[np.int64], k: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Score candidates (ascending positions) in float64; return the k best."""
    wide = query.astype(np.float64)
    scores = np.empty(len(candidates), dtype=np.float64)
    for start in range(0, len(candidates), RESCORE_ROWS):
        rows = stored[candidates[start : start + RESCORE_ROWS]].astype(np.float64)  # [rows, D]
        # one sum per row: a matrix product could round equal rows differently
        scores[start : start + len(rows)] = (rows * wide).sum(axis=1)
    order = np.argsort(-scores, kind="stable")[:k]
    return candidates[order], scores[order]


def rough_nearest(
    vectors: NDArray[np.float32], queries: NDArray[np.float32], k: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Find the k nearest of unit vectors [N, D] to queries [Q, D], in float32 only.

    The order of ties is not defined.

    Returns:
        Positions and cosines, each [Q, min(k, N)], best first.

    >>> rough_nearest(np.eye(3, dtype=np.float32), np.eye(3, dtype=np.float32)[1:2], k=1)[0]
    array([[1]])
    """
    k = min(k, len(vectors))
    similarity = queries @ vectors.T  # [Q, N]
    found = np.argpartition(similarity, -k, axis=1)[:, -k:] if k < len(vectors) else np.arange(k)[None]
    cosines = np.take_along_axis(similarity, np.broadcast_to(found, (len(queries), k)), axis=1)
    order = np.argsort(-cosines, axis=1, kind="stable")
    places = np.take_along_axis(np.broadcast_to(found, (len(queries), k)), order, axis=1)
    return places, np.take_along_axis(cosines, order, axis=1)

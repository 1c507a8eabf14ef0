"""Exact nearest neighbours by cosine among stored unit vectors; the stored array may be a memory map."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import UsageError

BLOCK_ELEMENTS = 1 << 24  # similarities held at once: 64 MB of float32
RESCORE_ROWS = 4096  # rows turned into float64 at a time
ROUNDING = 2.0**-24  # of one float32 operation


def unit_rows(vectors: NDArray[np.floating]) -> NDArray[np.float32]:
    """Rows ``[N, D]`` scaled to length 1; a row of zeros stays as it is. One that is not finite is refused.

    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    wide = np.asarray(vectors, dtype=np.float64)
    bad = np.flatnonzero(~np.isfinite(wide).all(axis=1))
    if len(bad):
        raise UsageError(
            f"embedding {bad[0]} of {len(wide)} is not finite; the encoder cannot be searched with"
        )
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    return (wide / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)


def nearest_exact(
    vectors: NDArray[np.float32], queries: NDArray[np.float32], k: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Positions and cosines ``[Q, k]`` of the k best of unit vectors ``[N, D]``, best first, ties by position.

    One float32 product finds all that could be among the best; those are scored again in float64, row by row, so that
    equal vectors get equal scores wherever they stand. k is cut to N.

    >>> stored = np.array([[1, 0], [0, 1], [1, 0]], dtype=np.float32)
    >>> nearest_exact(stored, stored[:1], k=2)[0]
    array([[0, 2]])
    """
    if k < 1:
        raise UsageError(f"k must be at least 1, got {k}")
    stored = np.asarray(vectors)  # a plain view: the subclass for memory maps costs at every slice
    if queries.ndim != 2 or stored.ndim != 2 or queries.shape[1] != stored.shape[1]:
        raise UsageError(f"queries {list(queries.shape)} do not fit vectors {list(stored.shape)}")
    count, dimension = stored.shape
    k = min(k, count)
    positions = np.empty((len(queries), k), dtype=np.int64)
    scores = np.empty((len(queries), k), dtype=np.float64)
    if k == 0:
        return positions, scores
    margin = 2 * (dimension + 2) * ROUNDING  # twice what a product of unit vectors can be wrong by
    step = max(1, BLOCK_ELEMENTS // count)
    for start in range(0, len(queries), step):
        part = np.ascontiguousarray(queries[start : start + step], dtype=np.float32)
        rough = part @ stored.T  # [part, N]
        for row, similarity in enumerate(rough, start):
            kth = np.partition(similarity, count - k)[count - k]
            candidates = np.flatnonzero(similarity >= kth - margin)
            positions[row], scores[row] = best_of(stored, queries[row], candidates, k)
    return positions, scores


def best_of(
    stored: NDArray[np.float32], query: NDArray[np.float32], candidates: NDArray[np.int64], k: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The k best of some positions (ascending), scored in float64: positions and cosines ``[k]``."""
    wide = query.astype(np.float64)
    scores = np.empty(len(candidates), dtype=np.float64)
    for start in range(0, len(candidates), RESCORE_ROWS):
        rows = stored[candidates[start : start + RESCORE_ROWS]].astype(np.float64)  # [rows, D]
        scores[start : start + len(rows)] = (rows * wide).sum(
            axis=1
        )  # each row alone: no place-dependent rounding
    order = np.argsort(-scores, kind="stable")[:k]
    return candidates[order], scores[order]

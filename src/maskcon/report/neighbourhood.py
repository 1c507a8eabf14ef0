"""Who is near whom in an embedding, and what that says of it: classes shared, hubs, similarities, effective rank.

near = neighbourhood(embeddings)
shared(near.positions, coarse)  # how often neighbours carry one's own label
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskcon.retrieval.nearest import nearest_others, unit_rows

NEIGHBOURS = 10
PAIRS = 200_000  # drawn to see how alike any two images are; all of them where there are fewer
SUSPECT_SHARE = 0.6  # of the neighbours under one other label: perhaps a wrong label, perhaps true likeness


@dataclass(frozen=True)
class Neighbourhood:
    """The nearest others of every image by cosine, best first.

    positions: [N, k] rows of the images, k = 10 or N - 1 where there are fewer
    cosines:   [N, k]
    effective_rank: exponential of the entropy of the singular values, from 1 to `dimensions`
    """

    positions: NDArray[np.int64]
    cosines: NDArray[np.float64]
    effective_rank: float
    dimensions: int


@dataclass(frozen=True)
class Hubs:
    """How unevenly images occur among the k nearest of others: N_k by its usual name.

    skewness: of the occurrences; 0 for an even spread, above about 1.5 a few images answer many queries
    orphans: share of the images that are among nobody's nearest
    largest, largest_count: the image found most often, and how often
    """

    skewness: float
    orphans: float
    largest: int
    largest_count: int


def neighbourhood(embeddings: NDArray[Any], k: int = NEIGHBOURS) -> Neighbourhood:
    """Exact neighbours of all N rows of [N, D]; each row is left out of its own by position.

    >>> neighbourhood(np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]), k=1).positions.tolist()
    [[1], [0], [1]]
    """
    unit = unit_rows(np.asarray(embeddings))
    positions, cosines = nearest_others(unit, np.arange(len(unit)), k)
    return Neighbourhood(positions, np.clip(cosines, -1.0, 1.0), effective_rank(unit), unit.shape[1])


def effective_rank(unit: NDArray[Any]) -> float:
    """Of rows of length 1, [N, D]; the same number as `maskcon.retrieval.effective_rank`.

    >>> round(effective_rank(np.eye(4)), 3)
    4.0
    """
    if not unit.size:
        return 1.0
    wide = np.asarray(unit, dtype=np.float64)
    values = np.linalg.svd(wide, compute_uv=False)
    total = values.sum()
    if total == 0:
        return 1.0
    share = values[values > 0] / total
    return max(1.0, float(np.exp(-(share * np.log(share)).sum())))


def shared(positions: NDArray[np.int64], labels: NDArray[Any]) -> tuple[float, float]:
    """How often the nearest, and how often any of the k nearest, carries the image's own label: shares in 0..1.

    >>> shared(np.array([[1, 2], [0, 2], [1, 0]]), np.array([0, 0, 1]))
    (0.6666666666666666, 0.3333333333333333)
    """
    if not positions.size:
        return 0.0, 0.0
    same = labels[positions] == labels[:, None]  # [N, k]
    return float(same[:, 0].mean()), float(same.mean())


def chance(labels: NDArray[Any]) -> float:
    """How often two different images drawn at random carry the same label.

    >>> chance(np.array([0, 0, 1, 1]))
    0.3333333333333333
    """
    counts = np.bincount(labels).astype(np.float64)
    pairs = len(labels) * (len(labels) - 1)
    return float((counts * (counts - 1)).sum() / pairs) if pairs else 0.0


def mutual(positions: NDArray[np.int64]) -> float:
    """How often an image is its nearest neighbour's nearest neighbour too.

    >>> mutual(np.array([[1], [0], [1]]))
    0.6666666666666666
    """
    if not positions.size:
        return 0.0
    nearest = positions[:, 0]
    return float((nearest[nearest] == np.arange(len(nearest))).mean())


def hubs(positions: NDArray[np.int64]) -> Hubs:
    """Counted over the k nearest of every image, [N, k].

    >>> hubs(np.array([[1], [0], [1], [1]])).largest_count
    3
    """
    count = len(positions)
    if not positions.size:
        return Hubs(0.0, 0.0, 0, 0)
    occurrences = np.bincount(positions.reshape(-1), minlength=count).astype(np.float64)
    away = occurrences - occurrences.mean()
    spread = float(np.sqrt(np.square(away).mean()))
    skewness = float((away**3).mean() / spread**3) if spread > 0 else 0.0
    largest = int(occurrences.argmax())
    return Hubs(skewness, float((occurrences == 0).mean()), largest, int(occurrences[largest]))


def confused_with(
    positions: NDArray[np.int64], labels: NDArray[Any], classes: int
) -> list[tuple[int, float, int | None, float]]:
    """For every class that has images: (class, share of its neighbours in it, the other class met most, its share).

    >>> confused_with(np.array([[1], [2], [1]]), np.array([0, 0, 1]), 2)
    [(0, 0.5, 1, 0.5), (1, 0.0, 0, 1.0)]
    """
    counts = np.zeros((classes, classes))
    k = positions.shape[1]
    np.add.at(counts, (np.repeat(labels, k), labels[positions].reshape(-1)), 1.0)
    found: list[tuple[int, float, int | None, float]] = []
    for kind in np.unique(labels).tolist():
        total = max(1.0, counts[kind].sum())
        others = counts[kind].copy()
        others[kind] = 0
        other = int(others.argmax()) if others.any() else None
        other_share = 0.0 if other is None else float(others[other] / total)
        found.append((kind, float(counts[kind, kind] / total), other, other_share))
    return found


def against_their_label(near: Neighbourhood, labels: NDArray[Any], most: int) -> NDArray[np.int64]:
    """Rows of up to `most` images whose neighbours mostly carry one other label, the clearest first.

    An image of a class that is too small to fill enough of its places could stand nowhere else, and is left out.
    """
    count, k = near.positions.shape
    if not near.positions.size:
        return np.zeros(0, dtype=np.int64)
    around = np.zeros((count, int(labels.max()) + 1))
    np.add.at(around, (np.repeat(np.arange(count), k), labels[near.positions].reshape(-1)), 1.0)
    around[np.arange(count), labels] = 0
    share = around.max(axis=1) / k  # [N]
    companions = np.bincount(labels)[labels] - 1  # [N]
    suspect = (share >= SUSPECT_SHARE) & (companions > (1 - SUSPECT_SHARE) * k)
    order = np.lexsort((-near.cosines.mean(axis=1), -share))
    chosen: NDArray[np.int64] = order[suspect[order]][:most]
    return chosen


def random_pairs(
    embeddings: NDArray[Any], labels: NDArray[Any], seed: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Cosines of pairs of different images drawn at random, and whether the two carry the same label."""
    unit = unit_rows(np.asarray(embeddings))
    count = len(unit)
    if count < 2:
        return np.zeros(0), np.zeros(0, dtype=np.bool_)
    if count * (count - 1) // 2 <= PAIRS:
        first, second = np.triu_indices(count, 1)
    else:
        generator = np.random.default_rng(seed)
        first = generator.integers(0, count, PAIRS)
        second = (first + generator.integers(1, count, PAIRS)) % count  # never the image itself
    cosines = np.concatenate(
        [
            np.einsum("nd,nd->n", unit[a], unit[b], dtype=np.float64)
            for a, b in zip(_parts(first), _parts(second), strict=True)
        ]
    )
    return np.clip(cosines, -1.0, 1.0), labels[first] == labels[second]


def _parts(rows: NDArray[np.int64]) -> Sequence[NDArray[np.int64]]:
    return np.array_split(rows, max(1, -(-len(rows) // 8192)))  # a few rows of vectors at a time

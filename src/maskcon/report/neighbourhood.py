"""The nearest neighbours in an embedding, and labels that they contradict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskcon.retrieval.nearest import nearest_others, unit_rows

NEIGHBOURS = 10
SUSPECT_SHARE = 0.6  # of the neighbours under one other label: a wrong label, or classes that look alike


@dataclass(frozen=True)
class Neighbourhood:
    """The nearest others of every image by cosine, best first.

    positions: [N, k] rows of the images, k = 10 or N - 1 where there are fewer
    cosines:   [N, k]
    """

    positions: NDArray[np.int64]
    cosines: NDArray[np.float64]


def neighbourhood(embeddings: NDArray[Any], k: int = NEIGHBOURS) -> Neighbourhood:
    """Find the exact neighbours of all N rows of [N, D], without the row itself.

    >>> neighbourhood(np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]), k=1).positions.tolist()
    [[1], [0], [1]]
    """
    unit = unit_rows(np.asarray(embeddings))
    positions, cosines = nearest_others(unit, np.arange(len(unit)), k)
    return Neighbourhood(positions, np.clip(cosines, -1.0, 1.0))


def suspect_labels(near: Neighbourhood, labels: NDArray[Any], most: int) -> NDArray[np.int64]:
    """Find up to `most` images whose neighbours mostly carry one other label, the clearest first.

    Images of classes too small to fill the neighbourhood are left out.
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

"""Choose w and tau without fine labels.

Re-coarsening, with three or more coarse classes: merge the coarse classes into two to four groups at random, train on
the groups, and score recall@1 on the coarse labels, which then are the finer ones. Each grouping ranks the settings;
the best mean rank wins.

Agreement, with one or two coarse classes, where nothing can be merged: train each setting with two seeds, and compare
the nearest neighbours N_a(i), N_b(i) of every image within its class of n_i images, corrected for chance:

    agreement = (o - e) / (1 - e),   o = mean_i |N_a(i) & N_b(i)| / k_i,   e = mean_i k_i / (n_i - 1)

Letters in shapes: S settings, R rounds, C coarse classes, N images, D embedding, k neighbours.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from maskcon.retrieval.nearest import nearest_others, unit_rows

Floats = NDArray[np.floating]
Labels = NDArray[np.int64]

MOST_GROUPS = 4
FEWEST_CLASSES = 3  # to merge some of them
NEIGHBOURS = 10


@dataclass(frozen=True, order=True)
class Setting:
    """Weight of the label term and temperature of the soft relation."""

    w: float
    tau: float

    def __str__(self) -> str:
        return f"w {self.w:g}" + (f", tau {self.tau:g}" if self.w > 0 else "")


# Without the label term (w = 0) tau has no effect; at tau = inf MaskCon is Grafit.
GRID = (
    Setting(0.0, 0.1),
    *itertools.starmap(Setting, itertools.product((0.5, 1.0), (0.02, 0.05, 0.1, math.inf))),
)


@dataclass(frozen=True)
class Ranking:
    """The settings, best first; scores [S, R] and mean ranks [S] in that order, 1 is the best rank."""

    settings: tuple[Setting, ...]
    scores: NDArray[np.float64]
    mean_ranks: NDArray[np.float64]

    @property
    def lead(self) -> tuple[float, float]:
        """Mean and standard error over rounds of the score of the best above that of the second."""
        ahead = self.scores[0] - self.scores[1]
        error = ahead.std(ddof=1) / math.sqrt(len(ahead)) if len(ahead) > 1 else math.inf
        return float(ahead.mean()), float(error)


def groupings(classes: int, rounds: int, *, seed: int = 0) -> NDArray[np.int64]:
    """Merge classes at random into 2, 3, 4, 2, ... groups of nearly equal numbers: the group of each, [R, C].

    There are always fewer groups than classes.

    >>> groupings(5, 2).max(axis=1) + 1
    array([2, 3])
    """
    if classes < FEWEST_CLASSES:
        raise ValueError(f"{classes=} cannot be merged into two or more groups of which one has several")
    most = min(MOST_GROUPS, classes - 1)
    random = np.random.Generator(np.random.PCG64(seed))
    dealt = [np.arange(classes) % (2 + number % (most - 1)) for number in range(rounds)]
    return np.stack([random.permutation(groups) for groups in dealt])


def rank_settings(settings: Sequence[Setting], scores: Floats) -> Ranking:
    """Order settings by their mean rank over rounds, scores [S, R] where larger is better; ties by mean score.

    >>> rank_settings([Setting(0, 1), Setting(1, 1)], np.array([[0.1, 0.5], [0.2, 0.6]])).settings[0].w
    1
    """
    values = np.asarray(scores, dtype=np.float64)
    ranks = rankdata(-values, axis=0).mean(axis=1)  # [S]; equal scores share their mean rank
    order = np.lexsort((-values.mean(axis=1), ranks))
    return Ranking(tuple(settings[place] for place in order), values[order], ranks[order])


def neighbours_within(vectors: Floats, coarse: Labels, k: int = NEIGHBOURS) -> dict[int, tuple[Labels, int]]:
    """Find the k nearest others of each image within its coarse class: class -> (positions [n, k], n).

    Classes with fewer than three images, where neighbours cannot differ, are left out.
    """
    unit = unit_rows(vectors)
    found = {}
    for label in np.unique(coarse).tolist():
        own = np.flatnonzero(coarse == label)
        if len(own) > 2:
            near = min(k, len(own) - 2)
            found[label] = nearest_others(unit[own], np.arange(len(own)), near)[0], len(own)
    return found


def agreement(one: Floats, other: Floats, coarse: Labels, k: int = NEIGHBOURS) -> float:
    """Compare the neighbours within classes of two embeddings [N, D] of the same images; see above.

    Returns:
        1 for the same neighbours everywhere, about 0 for unrelated ones, NaN without a class of three images.
    """
    shared, chance = [], []
    second = neighbours_within(other, coarse, k)
    for label, (near, count) in neighbours_within(one, coarse, k).items():
        both = (near[:, :, None] == second[label][0][:, None, :]).any(axis=2)  # [n, k]
        shared += both.mean(axis=1).tolist()
        chance += [near.shape[1] / (count - 1)] * count
    if not shared:
        return math.nan
    expected = float(np.mean(chance))
    return (float(np.mean(shared)) - expected) / (1 - expected)

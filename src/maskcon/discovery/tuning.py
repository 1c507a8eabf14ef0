"""Choose w and tau without fine labels.

Re-coarsening: merge the coarse classes, three or more, into two to four groups at random, train on the groups, and
score recall@1 on the original coarse labels, which are finer than the groups. Each grouping ranks the settings; the
best mean rank wins.

Letters in shapes: S settings, R rounds, C coarse classes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

Floats = NDArray[np.floating]

MOST_GROUPS = 4
FEWEST_CLASSES = 3  # fewer cannot be merged into two groups


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
    """Settings, best first, with scores [S, R] and mean ranks [S]; rank 1 is best."""

    settings: tuple[Setting, ...]
    scores: NDArray[np.float64]
    mean_ranks: NDArray[np.float64]

    @property
    def lead(self) -> tuple[float, float]:
        """Mean and standard error over rounds of the best score minus the second best."""
        ahead = self.scores[0] - self.scores[1]
        error = ahead.std(ddof=1) / math.sqrt(len(ahead)) if len(ahead) > 1 else math.inf
        return float(ahead.mean()), float(error)


def groupings(classes: int, rounds: int, *, seed: int = 0) -> NDArray[np.int64]:
    """Merge classes at random into groups of nearly equal size, [R, C].

    Rounds have 2, 3, 4, 2, ... groups, always fewer than there are classes.

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
    """Order settings by their mean rank over rounds; ties by mean score.

    scores: [S, R], larger is better

    >>> rank_settings([Setting(0, 1), Setting(1, 1)], np.array([[0.1, 0.5], [0.2, 0.6]])).settings[0].w
    1
    """
    values = np.asarray(scores, dtype=np.float64)
    ranks = rankdata(-values, axis=0).mean(axis=1)  # [S]; equal scores share their mean rank
    order = np.lexsort((-values.mean(axis=1), ranks))
    return Ranking(tuple(settings[place] for place in order), values[order], ranks[order])

"""The scores of benchmarks/kinds.py."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.discovery.generated import clustered

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from kinds import matched, score


@pytest.mark.parametrize("seed", range(5))
def test_matched_is_the_best_of_all_matchings(seed):
    random = np.random.default_rng(seed)
    truth, found = np.r_[0:3, random.integers(0, 3, 20)], np.r_[0:3, random.integers(0, 3, 20)]
    best = max((np.array(order)[found] == truth).sum() for order in itertools.permutations(range(3)))
    assert matched(truth, found) == best


def test_clear_kinds_score_full_marks():
    several, fine = clustered((60, 50, 40), distance=0.6)
    one, _ = clustered((60,), seed=3, noise=0.6)
    result, kinds = score(
        np.concatenate([several.vectors, one.vectors]),
        np.repeat([0, 1], [150, 60]),
        np.concatenate([fine, np.full(60, 3)]),
    )
    assert result == {
        "accuracy": 100.0,
        "k-means": 100.0,
        "ari_true": 1.0,
        "ari_suggested": 1.0,
        "within": 1.0,
        "whole": 1.0,
        "kinds": 4,
        "fine_labels": 4,
    }
    assert [len(found) for found in kinds] == [210, 210]

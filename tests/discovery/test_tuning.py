"""Groupings and ranks of `maskcon tune`."""

from __future__ import annotations

import math

import numpy as np
import pytest

from maskcon.discovery.tuning import GRID, Setting, groupings, rank_settings


@pytest.mark.parametrize("classes", [3, 4, 5, 20, 43])
def test_groupings_deal_classes_evenly_into_fewer_groups(classes):
    merged = groupings(classes, 7)
    assert merged.shape == (7, classes)
    for row in merged:
        sizes = np.bincount(row)
        assert 2 <= len(sizes) <= min(4, classes - 1)
        assert sizes.max() - sizes.min() <= 1
    assert np.array_equal(merged, groupings(classes, 7))
    assert np.array_equal(merged[:3], groupings(classes, 3))  # more rounds keep the earlier ones
    if classes > 4:
        assert [row.max() + 1 for row in merged] == [2, 3, 4, 2, 3, 4, 2]
        assert len({tuple(row) for row in merged}) > 4


def test_two_classes_cannot_be_merged():
    with pytest.raises(ValueError, match="classes=2"):
        groupings(2, 3)


def rank_by_hand(column: list[float], place: int) -> float:
    """1 + others that are better + half of those that are equal."""
    mine = column[place]
    equal = sum(value == mine for value in column) - 1
    return 1 + sum(value > mine for value in column) + equal / 2


@pytest.mark.parametrize("seed", range(5))
def test_mean_ranks_match_counting(seed):
    scores = np.random.default_rng(seed).integers(0, 5, (len(GRID), 4)) / 10  # with ties
    ranking = rank_settings(GRID, scores)
    for setting, rank, row in zip(ranking.settings, ranking.mean_ranks, ranking.scores, strict=True):
        place = GRID.index(setting)
        assert rank == pytest.approx(np.mean([rank_by_hand(list(scores[:, n]), place) for n in range(4)]))
        assert np.array_equal(row, scores[place])
    assert list(ranking.mean_ranks) == sorted(ranking.mean_ranks)


def test_the_lead_is_that_of_the_best_over_the_second():
    ranking = rank_settings([Setting(0, 1), Setting(1, 1)], np.array([[0.5, 0.5, 0.5], [0.6, 0.7, 0.8]]))
    assert ranking.lead == pytest.approx((0.2, 0.1 / math.sqrt(3)))

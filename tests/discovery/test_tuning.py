"""Groupings, ranks and agreement of `maskcon tune`."""

from __future__ import annotations

import math

import numpy as np
import pytest

from maskcon.discovery.tuning import GRID, Setting, agreement, groupings, rank_settings


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


def agreement_by_hand(one: np.ndarray, other: np.ndarray, coarse: np.ndarray, k: int) -> float:
    shared, chance = [], []
    for i in range(len(one)):
        others = [j for j in range(len(one)) if coarse[j] == coarse[i] and j != i]
        if len(others) < 2:
            continue
        near = min(k, len(others) - 1)
        found = []
        for vectors in (one, other):
            cosine = {
                j: vectors[i] @ vectors[j] / np.linalg.norm(vectors[i]) / np.linalg.norm(vectors[j])
                for j in others
            }
            found.append(set(sorted(others, key=lambda j: -cosine[j])[:near]))
        shared.append(len(found[0] & found[1]) / near)
        chance.append(near / len(others))
    return (np.mean(shared) - np.mean(chance)) / (1 - np.mean(chance))


@pytest.mark.parametrize("seed", range(3))
def test_agreement_matches_loop_oracle(seed):
    random = np.random.default_rng(seed)
    one = random.standard_normal((60, 5))
    other = one + 0.5 * random.standard_normal((60, 5))
    coarse = np.repeat([0, 1, 2, 3], [30, 25, 4, 1])
    assert agreement(one, other, coarse, 3) == pytest.approx(agreement_by_hand(one, other, coarse, 3))


def test_agreement_is_one_for_the_same_and_near_zero_for_unrelated_neighbours():
    random = np.random.default_rng(0)
    one, coarse = random.standard_normal((400, 8)), np.arange(400) % 2
    assert agreement(one, 3 * one, coarse) == 1
    assert abs(agreement(one, random.standard_normal((400, 8)), coarse)) < 0.03
    assert math.isnan(agreement(one[:2], one[:2], coarse[:2]))

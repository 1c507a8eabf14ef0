"""Names spread by a teacher's features, and the cross-entropy on them."""

from __future__ import annotations

import math

import pytest
import torch

from maskcon.methods.losses import finest_cross_entropy
from maskcon.methods.name_spreading import spread_names
from tests import oracles


def random_case(seed: int, count: int = 40):
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.randint(2, (count,), generator=generator)
    fine = 2 * coarse + torch.randint(2, (count,), generator=generator)
    vectors = torch.randn(4, 6, generator=generator)[fine] + torch.randn(count, 6, generator=generator)
    known = torch.rand(count, generator=generator) < 0.3
    return vectors, coarse, torch.where(known, fine, -1), fine


@pytest.mark.parametrize("seed", range(6))
def test_spreading_matches_dense_oracle(seed):
    vectors, coarse, names, _ = random_case(seed)
    expected = oracles.spread_names(vectors.tolist(), coarse.tolist(), names.tolist())
    assert spread_names(vectors, coarse, names, names < 0).tolist() == expected


def test_names_spread_to_their_clusters_and_not_to_another_class():
    generator = torch.Generator().manual_seed(0)
    fine = torch.arange(400) % 4
    coarse = fine // 2
    centres = torch.randn(4, 8, generator=generator)
    vectors = centres[fine] + 0.2 * torch.randn(400, 8, generator=generator)
    names = torch.full((400,), -1)
    names[:4] = fine[:4]
    assert torch.equal(spread_names(vectors, coarse, names, names < 0), fine)
    one_class = torch.where(coarse == 0, names, -1)
    expected = torch.where(coarse == 0, fine, -1)
    assert torch.equal(spread_names(vectors, coarse, one_class, one_class < 0), expected)


def test_images_that_may_take_none_and_classes_of_one_name_keep_what_they_have():
    vectors, coarse, names, _ = random_case(1)
    assert torch.equal(spread_names(vectors, coarse, names, torch.zeros(40, dtype=torch.bool)), names)
    alone = torch.where(names == 0, 0, -1)
    assert torch.equal(spread_names(vectors, coarse, alone, alone < 0), alone)
    whole = coarse.clone()
    assert torch.equal(spread_names(vectors, coarse, whole, whole < 0), whole)


def test_images_that_no_known_name_reaches_stay_unnamed():
    generator = torch.Generator().manual_seed(0)
    cluster = torch.arange(120) % 3
    corners = torch.tensor([[1.0, 0.0], [-0.5, 0.75**0.5], [-0.5, -(0.75**0.5)]])
    vectors = corners[cluster] + 0.01 * torch.randn(120, 2, generator=generator)
    names = torch.full((120,), -1)
    names[:2] = torch.tensor([5, 7])  # the third cluster has none
    expected = torch.tensor([5, 7, -1])[cluster]
    assert torch.equal(spread_names(vectors, torch.zeros(120), names, names < 0), expected)


def test_identical_images_say_nothing_about_each_other():
    names = torch.tensor([3, 4, -1, -1])
    assert torch.equal(spread_names(torch.ones(4, 5), torch.zeros(4), names, names < 0), names)


@pytest.mark.parametrize("seed", range(3))
def test_finest_cross_entropy_matches_loop_oracle(seed):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(8, 7, generator=generator)
    coarse_of = torch.tensor([0, 0, 1, 1, 0, 1, 2])  # four names, three classes
    coarse = torch.tensor([0, 0, 1, 1, 2, 2, 0, 1])
    names = torch.tensor([0, 1, 2, -1, -1, -3, -1, 3])
    losses = finest_cross_entropy(logits, coarse, names, coarse_of)
    for row in range(8):
        shares = [math.exp(value) for value in logits[row].tolist()]
        allowed = [
            share
            for c, share in enumerate(shares)
            if (c == names[row] if names[row] >= 0 else coarse_of[c] == coarse[row])
        ]
        assert losses[row].item() == pytest.approx(-math.log(sum(allowed) / sum(shares)), rel=1e-4)


def test_without_names_it_is_the_coarse_cross_entropy_and_with_all_that_of_the_names():
    logits, none = torch.randn(5, 3), torch.full((5,), -1)
    labels = torch.tensor([0, 1, 2, 1, 0])
    expected = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    torch.testing.assert_close(finest_cross_entropy(logits, labels, none, torch.arange(3)), expected)
    torch.testing.assert_close(finest_cross_entropy(logits, none, labels, torch.zeros(3)), expected)

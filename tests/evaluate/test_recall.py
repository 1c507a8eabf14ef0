from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from maskcon.evaluate import effective_rank, nearest, recall, recall_at_k
from tests import oracles


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 10_000), st.integers(1, 25), st.integers(1, 5), st.sampled_from([7, 40, 1 << 23]))
def test_recall_matches_sorting_oracle_for_any_block_size(seed, count, classes, block):
    generator = torch.Generator().manual_seed(seed)
    embeddings = torch.randn(count, 3, generator=generator)
    labels = torch.randint(classes, (count,), generator=generator)
    before = recall.BLOCK_ELEMENTS
    recall.BLOCK_ELEMENTS = block
    try:
        found = recall_at_k(embeddings, labels, ks=(1, 2, 5, 10))
    finally:
        recall.BLOCK_ELEMENTS = before
    for k, share in found.items():
        assert share == pytest.approx(oracles.recall(embeddings, labels.tolist(), k))


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 10_000), st.integers(2, 20), st.integers(1, 4))
def test_duplicates_and_ties_follow_position_and_leave_only_oneself_out(seed, count, classes):
    generator = torch.Generator().manual_seed(seed)
    corners = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])  # exact duplicates and exact ties
    embeddings = corners[torch.randint(3, (count,), generator=generator)]
    labels = torch.randint(classes, (count,), generator=generator)
    for k, share in recall_at_k(embeddings, labels, ks=(1, 2, 3)).items():
        assert share == pytest.approx(oracles.recall(embeddings, labels.tolist(), k))


def test_an_image_is_not_its_own_neighbour_even_among_copies():
    embeddings = torch.ones(3, 2)
    assert recall_at_k(embeddings, torch.tensor([0, 1, 2]), ks=(1, 2)) == {1: 0.0, 2: 0.0}
    assert recall_at_k(embeddings, torch.tensor([0, 0, 0]), ks=(1,)) == {1: 1.0}


def test_a_label_that_nobody_else_has_is_a_miss_at_every_k():
    assert recall_at_k(torch.eye(3), torch.tensor([0, 0, 1]), ks=(10,))[10] == pytest.approx(2 / 3)


def test_scale_of_embeddings_does_not_matter():
    generator = torch.Generator().manual_seed(1)
    embeddings = torch.randn(30, 4, generator=generator)
    labels = torch.arange(30) % 4
    scaled = embeddings * torch.rand(30, 1, generator=generator).add(0.1)
    assert recall_at_k(embeddings, labels) == recall_at_k(scaled, labels)


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="ks"):
        recall_at_k(torch.eye(3), torch.arange(3), ks=(0,))
    with pytest.raises(ValueError, match="expected"):
        recall_at_k(torch.eye(3), torch.arange(4))
    with pytest.raises(ValueError, match="at least one"):
        recall_at_k(torch.empty(0, 3), torch.empty(0))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_embeddings_with_nan_or_inf_are_refused_instead_of_ranked(value):
    embeddings = torch.tensor([[1.0, 0.0], [1.0, 0.1], [value, 0.0], [0.0, 1.0]])
    with pytest.raises(ValueError, match="1 of 4 embeddings hold NaN or Inf"):
        recall_at_k(embeddings, torch.tensor([0, 0, 1, 1]))


def test_recall_and_neighbours_are_the_same_under_autocast():
    generator = torch.Generator().manual_seed(3)
    embeddings = 1 + 0.01 * torch.randn(60, 8, generator=generator)  # cosines that bfloat16 cannot tell apart
    labels = torch.arange(60) % 6
    rows = torch.arange(60)
    plain = recall_at_k(embeddings, labels), nearest(embeddings, rows)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert recall_at_k(embeddings, labels) == plain[0]
        assert torch.equal(nearest(embeddings, rows)[0], plain[1][0])


class NoDoubles(TorchDispatchMode):
    """Apple's MPS has no double precision."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        assert not (isinstance(result, torch.Tensor) and result.dtype == torch.float64), func
        return result


def test_recall_needs_no_double_precision():
    with NoDoubles():
        assert recall_at_k(torch.eye(3), torch.tensor([0, 0, 1]), ks=(2,)) == {2: 2 / 3}


def test_nearest_of_one_image_or_none_is_empty():
    assert nearest(torch.ones(1, 3), torch.tensor([0]))[0].shape == (1, 0)
    nobody = torch.empty(0, dtype=torch.long)
    assert nearest(torch.ones(5, 3), nobody, k=2)[0].shape == (0, 2)
    assert nearest(torch.empty(0, 3), nobody)[0].shape == (0, 0)


def test_nearest_agrees_with_a_full_sort_and_leaves_oneself_out():
    generator = torch.Generator().manual_seed(2)
    embeddings = torch.randn(40, 6, generator=generator)
    rows = torch.tensor([0, 7, 39])
    positions, cosines = nearest(embeddings, rows, k=5)
    unit = torch.nn.functional.normalize(embeddings, dim=1)
    for row, found, values in zip(rows.tolist(), positions, cosines, strict=True):
        similarity = unit @ unit[row]
        order = [j for j in similarity.argsort(descending=True).tolist() if j != row][:5]
        assert found.tolist() == order
        torch.testing.assert_close(values, similarity[order])
    assert nearest(embeddings, rows, k=1000)[0].shape == (3, 39)


def test_effective_rank_counts_directions():
    assert effective_rank(torch.ones(50, 8)) == 1.0
    assert effective_rank(torch.eye(8)) == pytest.approx(8)
    assert effective_rank(torch.zeros(5, 3)) == 1.0
    two = torch.tensor([[1.0, 0, 0], [0, 1.0, 0]] * 20)
    assert effective_rank(two) == pytest.approx(2)

"""Means of queries as keys: beside a slow count, of images never seen, and through saving."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from maskcon.models.momentum import KeyMeans


def unit(vector: torch.Tensor) -> torch.Tensor:
    return vector / vector.norm()


@settings(deadline=None)
@given(st.integers(0, 2**30), st.sampled_from([0.0, 0.3, 0.5, 0.9]), st.integers(1, 12))
def test_means_are_those_of_a_count_image_by_image(seed, kept, batches):
    generator = torch.Generator().manual_seed(seed)
    means = KeyMeans(images=7, dim=4, kept=kept)
    slow: dict[int, torch.Tensor] = {}
    for _ in range(batches):
        rows = torch.randperm(7, generator=generator)[:3]
        queries = torch.nn.functional.normalize(torch.randn(3, 4, generator=generator), dim=1)
        for row, query in zip(rows.tolist(), queries, strict=True):
            slow[row] = query if row not in slow else unit(kept * slow[row] + (1 - kept) * query)
        means.take_in(rows, queries)
    other = torch.nn.functional.normalize(torch.randn(7, 4, generator=generator), dim=1)
    wanted = torch.stack([slow.get(row, other[row]) for row in range(7)])
    torch.testing.assert_close(means.of(torch.arange(7), other), wanted, atol=1e-5, rtol=0)


def test_a_query_that_cancels_the_mean_leaves_no_nan():
    means = KeyMeans(images=1, dim=2, kept=0.5)
    row = torch.tensor([0])
    means.take_in(row, torch.tensor([[1.0, 0.0]]))
    means.take_in(row, torch.tensor([[-1.0, 0.0]]))
    assert means.of(row, torch.tensor([[0.0, 1.0]])).tolist() == [[0.0, 1.0]]  # as if never seen


def test_neither_keys_nor_what_is_taken_in_have_a_gradient():
    means = KeyMeans(images=2, dim=2, kept=0.5)
    queries = torch.eye(2, requires_grad=True)
    means.take_in(torch.arange(2), queries)
    assert not means.of(torch.arange(2), queries).requires_grad
    assert not next(iter(means.state_dict().values())).requires_grad


def test_saved_and_loaded_they_are_the_same():
    means, fresh = (KeyMeans(images=3, dim=2, kept=0.5) for _ in range(2))
    means.take_in(torch.tensor([2]), torch.tensor([[0.6, 0.8]]))
    fresh.load_state_dict(means.state_dict())
    every, other = torch.arange(3), torch.ones(3, 2)
    assert fresh.of(every, other).equal(means.of(every, other))


@pytest.mark.parametrize("kept", [-0.1, 1.0])
def test_a_share_that_would_never_move_is_refused(kept):
    with pytest.raises(ValueError, match="kept"):
        KeyMeans(images=3, dim=2, kept=kept)

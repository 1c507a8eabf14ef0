from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from maskcon.retrieval import recall
from maskcon.retrieval.recall import recall_at_k
from tests import oracles


@contextmanager
def blocks(rows: int, kept: int, strip: int = 8) -> Iterator[None]:
    before = recall.BLOCK_ROWS, recall.CACHED_ELEMENTS, recall.STRIP_BLOCKS
    recall.BLOCK_ROWS, recall.CACHED_ELEMENTS, recall.STRIP_BLOCKS = rows, kept, strip
    try:
        yield
    finally:
        recall.BLOCK_ROWS, recall.CACHED_ELEMENTS, recall.STRIP_BLOCKS = before


ANY_BLOCKS = {
    "rows": st.sampled_from([1, 2, 3, 7, 512]),
    "kept": st.sampled_from([0, 1 << 25]),
    "strip": st.sampled_from([1, 3, 8]),
}


@settings(deadline=None, max_examples=150)
@given(
    seed=st.integers(0, 10_000),
    count=st.integers(1, 25),
    classes=st.integers(1, 12),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    **ANY_BLOCKS,
)
def test_recall_matches_sorting_oracle_for_any_block_size(seed, count, classes, dtype, rows, kept, strip):
    generator = torch.Generator().manual_seed(seed)
    embeddings = torch.randn(count, 3, generator=generator).to(dtype)
    labels = torch.randint(classes, (count,), generator=generator)
    with blocks(rows, kept, strip):
        found = recall_at_k(embeddings, labels, ks=(1, 2, 5, 10))
    for k, share in found.items():
        assert share == pytest.approx(oracles.recall(embeddings, labels.tolist(), k))


@settings(deadline=None, max_examples=150)
@given(seed=st.integers(0, 10_000), count=st.integers(2, 20), classes=st.integers(1, 6), **ANY_BLOCKS)
def test_duplicates_and_ties_follow_position_and_leave_only_oneself_out(
    seed, count, classes, rows, kept, strip
):
    generator = torch.Generator().manual_seed(seed)
    corners = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])  # exact duplicates and exact ties
    embeddings = corners[torch.randint(3, (count,), generator=generator)]
    labels = torch.randint(classes, (count,), generator=generator)
    with blocks(rows, kept, strip):
        found = recall_at_k(embeddings, labels, ks=(1, 2, 3))
    for k, share in found.items():
        assert share == pytest.approx(oracles.recall(embeddings, labels.tolist(), k))


def ranks_by_sorting(embeddings: torch.Tensor, labels: torch.Tensor, limit: int) -> list[int]:
    """Ranks by a stable sort of the whole similarity matrix."""
    unit = torch.nn.functional.normalize(embeddings, dim=1)
    similarity = unit @ unit.T
    similarity.fill_diagonal_(-torch.inf)
    order = similarity.sort(dim=1, descending=True, stable=True).indices[:, :-1]
    match = labels[order] == labels.unsqueeze(1)
    rank = torch.where(match.any(dim=1), match.int().argmax(dim=1), recall.NO_MATCH)
    return torch.where(rank < limit, rank, recall.NO_MATCH).tolist()


@pytest.mark.parametrize("kept", [0, 1 << 25])
@pytest.mark.parametrize(("count", "dimension", "classes"), [(700, 37, 5), (1500, 128, 400), (1100, 512, 2)])
def test_copies_under_other_labels_tie_in_blocks_of_usual_size(count, dimension, classes, kept):
    generator = torch.Generator().manual_seed(count)
    originals = torch.randn(count // 3, dimension, generator=generator)
    embeddings = originals[torch.randint(len(originals), (count,), generator=generator)]
    labels = torch.randint(classes, (count,), generator=generator)
    with blocks(256, kept, strip=2):
        found = recall.rank_of_first_match(embeddings, labels, limit=20)
    assert found.tolist() == ranks_by_sorting(embeddings, labels, 20)


def test_the_way_is_told_from_the_first_block_to_the_last():
    told: list[tuple[int, int]] = []
    generator = torch.Generator().manual_seed(0)
    with blocks(4, 0):
        recall_at_k(
            torch.randn(30, 3, generator=generator),
            torch.arange(30) % 5,
            progress=lambda done, total: told.append((done, total)),
        )
    done = [similarities for similarities, _ in told]
    assert done == sorted(set(done))
    assert {total for _, total in told} == {done[-1]}
    assert done[0] <= 4 * 4  # the first block with itself
    assert 30 * 29 / 2 <= done[-1] <= 30 * 30  # each pair once, and none on both ways but within blocks


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
@pytest.mark.parametrize("rows", [[2], [0, 3]])
def test_embeddings_with_nan_or_inf_are_refused_instead_of_ranked(value, rows):
    embeddings = torch.tensor([[1.0, 0.0], [1.0, 0.1], [1.0, 0.2], [0.0, 1.0]])
    embeddings[rows, 0] = value
    with pytest.raises(ValueError, match=f"^{len(rows)} of 4 embeddings hold NaN or Inf"):
        recall_at_k(embeddings, torch.tensor([0, 0, 1, 1]))


def test_the_usual_k_are_those_of_the_paper():
    assert list(recall_at_k(torch.eye(3), torch.tensor([0, 0, 1]))) == [1, 2, 5, 10]


def test_recall_is_the_same_under_autocast():
    generator = torch.Generator().manual_seed(3)
    embeddings = 1 + 0.01 * torch.randn(60, 8, generator=generator)  # cosines that bfloat16 cannot tell apart
    labels = torch.arange(60) % 6
    plain = recall_at_k(embeddings, labels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert recall_at_k(embeddings, labels) == plain


class NoDoubles(TorchDispatchMode):
    """Apple's MPS has no double precision."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        assert not (isinstance(result, torch.Tensor) and result.dtype == torch.float64), func
        return result


def test_recall_needs_no_double_precision():
    with NoDoubles():
        assert recall_at_k(torch.eye(3), torch.tensor([0, 0, 1]), ks=(2,)) == {2: 2 / 3}

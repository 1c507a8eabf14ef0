"""Lists of neighbours beside slow counts: who is nearest, and what a bank has of them."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from maskcon.methods import neighbour_lists
from maskcon.methods.neighbour_lists import NeighbourLists, nearest_in


def random_looks(seed: int, count: int, looks: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(count, looks, 5, generator=generator), dim=2)


def slow_similarity(looks: torch.Tensor) -> list[list[float]]:
    """Pair by pair, look by look."""

    def seems(one: torch.Tensor, other: torch.Tensor) -> float:
        return max(sum(a * b for a, b in zip(look, other[0].tolist(), strict=True)) for look in one.tolist())

    return [[(seems(one, other) + seems(other, one)) / 2 for other in looks] for one in looks]


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 10_000),
    st.integers(1, 14),
    st.integers(1, 3),
    st.integers(1, 20),
    st.sampled_from([3, 5, 64]),
)
def test_the_nearest_are_those_of_a_count_pair_by_pair(seed, count, looks, length, tile):
    vectors = random_looks(seed, count, looks)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(neighbour_lists, "TILE", tile)
        places, similarity = nearest_in(vectors, length)
    slow = torch.tensor(slow_similarity(vectors))
    expected = slow.sort(dim=1, descending=True).values[:, : min(length, count)]
    torch.testing.assert_close(similarity, expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(slow.gather(1, places), expected, atol=1e-5, rtol=0)
    assert all(len(set(row)) == len(row) for row in places.tolist())


def test_the_share_that_is_done_rises_to_all_of_it(monkeypatch):
    monkeypatch.setattr(neighbour_lists, "TILE", 3)
    told: list[float] = []
    nearest_in(random_looks(0, 10, 2), 4, told.append)
    assert told == sorted(told)
    assert told[0] == pytest.approx(1 - 0.7**2)
    assert told[-1] == 1


def test_vectors_in_half_precision_are_compared_in_float32():
    vectors = random_looks(1, 40, 2).half()
    _, similarity = nearest_in(vectors, 40)
    _, expected = nearest_in(vectors.float(), 40)
    assert similarity.dtype == torch.float32
    assert similarity.equal(expected)


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 10_000), st.integers(1, 9), st.integers(1, 6), st.integers(1, 7), st.integers(0, 20))
def test_a_bank_s_entries_have_the_similarity_of_their_image(seed, count, length, batch, bank):
    """Also where the bank holds an image several times, or not at all; and of lists that are not full."""
    generator = torch.Generator().manual_seed(seed)
    groups = torch.randint(2, (count,), generator=generator)
    lists = NeighbourLists.empty(count, length)
    known: dict[tuple[int, int], float] = {}
    for group in (0, 1):
        members = (groups == group).nonzero().squeeze(1)
        if len(members) == 0:
            continue
        places, similarity = nearest_in(random_looks(seed + group, len(members), 2), length)
        lists.put(members, places, similarity)
        for row, near, values in zip(
            members.tolist(), members[places].tolist(), similarity.tolist(), strict=True
        ):
            known |= {(row, other): value for other, value in zip(near, values, strict=True)}
    asked = torch.randint(count, (batch,), generator=generator)
    entries = torch.randint(count, (bank,), generator=generator)
    table = lists.among(asked, entries).table()
    expected = [[known.get((one, other), -math.inf) for other in entries.tolist()] for one in asked.tolist()]
    assert table.dtype == torch.float32
    torch.testing.assert_close(table, torch.tensor(expected).view(batch, bank), atol=1e-3, rtol=0)
    part = lists.among(asked, entries).rows(slice(1, None)).table()
    assert part.equal(table[1:])

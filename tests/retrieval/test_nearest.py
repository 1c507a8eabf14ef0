from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskcon._utils.errors import UsageError
from maskcon.retrieval import nearest as nearest_module
from maskcon.retrieval.nearest import nearest, nearest_others, unit_rows


def oracle(vectors, query, k):
    """Every cosine in float64 by itself, sorted by (worse, later)."""
    scored = []
    for position, vector in enumerate(vectors):
        product = float((vector.astype(np.float64) * query.astype(np.float64)).sum())
        scored.append((-product, position))
    return [position for _, position in sorted(scored)[:k]]


def cloud(count, dimension, seed=0):
    return unit_rows(np.random.default_rng(seed).standard_normal((count, dimension)))


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 60), st.integers(1, 20), st.integers(1, 70), st.integers(0, 10_000))
def test_exact_search_matches_the_loop_oracle_with_duplicates(count, dimension, k, seed):
    vectors = cloud(count, dimension, seed)
    vectors = vectors[np.random.default_rng(seed).integers(0, count, 2 * count)]  # many equal ones
    queries = np.concatenate([cloud(3, dimension, seed + 1), vectors[:1]])
    positions, scores = nearest(vectors, queries, k)
    assert positions.shape == scores.shape == (4, min(k, 2 * count))
    for query, found in zip(queries, positions.tolist(), strict=True):
        assert found == oracle(vectors, query, k)
    assert (np.diff(scores, axis=1) <= 0).all()


def test_equal_vectors_come_in_the_order_of_the_index_wherever_they_stand():
    vectors = cloud(5000, 130)
    twins = [7, 1024, 2047, 2048, 4999]
    vectors[twins] = vectors[7]
    positions, scores = nearest(vectors, vectors[7:8], 5)
    assert positions[0].tolist() == twins
    assert len(set(scores[0].tolist())) == 1


def test_differences_below_float32_products_are_still_ordered():
    base = cloud(1, 512)[0]
    vectors = np.stack([base] * 50)
    vectors[::-1, 0] += np.arange(50, dtype=np.float32) * np.float32(2e-8)  # the first is changed most
    positions, _ = nearest(vectors, np.sign(base[0]) * base[None], 50)
    assert positions[0].tolist() == oracle(vectors, np.sign(base[0]) * base, 50)


def test_many_queries_are_answered_in_blocks_as_one_by_one(monkeypatch):
    vectors, queries = cloud(200, 8), cloud(23, 8, seed=1)
    whole = nearest(vectors, queries, 4)
    monkeypatch.setattr(nearest_module, "BLOCK_ELEMENTS", 5 * 200)
    monkeypatch.setattr(nearest_module, "RESCORE_ROWS", 3)
    parts = nearest(vectors, queries, 4)
    assert (whole[0] == parts[0]).all()
    assert (whole[1] == parts[1]).all()


def test_no_vectors_no_neighbours():
    positions, scores = nearest(np.empty((0, 4), np.float32), cloud(2, 4), 10)
    assert positions.shape == scores.shape == (2, 0)


@pytest.mark.parametrize(("shape", "k"), [((1, 5), 1), ((4,), 1), ((1, 4), 0), ((1, 4), -3)])
def test_queries_that_do_not_fit_are_refused(shape, k):
    with pytest.raises(UsageError, match=r"k must be|do not fit"):
        nearest(cloud(3, 4), np.ones(shape, np.float32), k)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_embeddings_that_are_not_finite_are_refused(value):
    with pytest.raises(UsageError, match="embedding 1 of 2 is not finite"):
        unit_rows(np.array([[1.0, 2.0], [value, 1.0]]))


def test_lengths_are_one_even_of_tiny_and_huge_vectors():
    rows = unit_rows(np.array([[1e-30, 0.0], [3e30, 4e30], [0.0, 0.0]]))
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), [1, 1, 0], rtol=1e-6)


def test_nearest_others_of_one_image_or_none_is_empty():
    none = np.empty(0, dtype=np.int64)
    assert nearest_others(cloud(1, 3), np.array([0]), 10)[0].shape == (1, 0)
    assert nearest_others(cloud(5, 3), none, 2)[0].shape == (0, 2)
    assert nearest_others(np.empty((0, 3), np.float32), none, 10)[0].shape == (0, 0)


@pytest.mark.parametrize("block", [1 << 24, 90, 1])
def test_nearest_others_agree_with_a_full_sort_and_leave_the_row_out(monkeypatch, block):
    monkeypatch.setattr(nearest_module, "BLOCK_ELEMENTS", block)
    unit, rows = cloud(40, 6), np.array([0, 7, 39])
    positions, cosines = nearest_others(unit, rows, 5)
    for row, found, values in zip(rows.tolist(), positions, cosines, strict=True):
        similarity = unit @ unit[row]
        order = [j for j in np.argsort(-similarity).tolist() if j != row][:5]
        assert found.tolist() == order
        np.testing.assert_allclose(values, similarity[order], atol=1e-6)
    whole, _ = nearest_others(unit, rows, 1000)
    assert [sorted(found) for found in whole.tolist()] == [
        [other for other in range(40) if other != row] for row in rows.tolist()
    ]


@pytest.mark.slow
def test_a_query_among_a_hundred_thousand_takes_less_than_50_ms():
    vectors = cloud(100_000, 512)
    times = []
    for number in range(9):
        begun = (
            time.process_time()
        )  # of all threads, so no less than by the clock, and the same on a busy machine
        nearest(vectors, vectors[number : number + 1], 10)
        times.append(time.process_time() - begun)
    assert min(times) < 0.05

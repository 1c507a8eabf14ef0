from __future__ import annotations

import math

import numpy as np
import pytest

from maskcon._utils.errors import UsageError
from maskcon.report.sample import neighbourhood, suspect_labels
from maskcon.retrieval.nearest import unit_rows


def embeddings(n: int = 40, d: int = 6, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d)) + 0.4


def slow_neighbours(rows: np.ndarray, k: int) -> list[list[int]]:
    """Row by row, without oneself, the earlier of two equals first."""
    unit = [row / np.linalg.norm(row) for row in rows]
    found = []
    for i, row in enumerate(unit):
        others = [(-round(float(row @ other), 12), j) for j, other in enumerate(unit) if j != i]
        found.append([j for _, j in sorted(others)[:k]])
    return found


def test_neighbours_match_a_slow_oracle() -> None:
    rows = embeddings()
    near = neighbourhood(rows, 7)
    assert near.positions.tolist() == slow_neighbours(rows, 7)
    unit = unit_rows(rows)
    expected = np.take_along_axis(unit @ unit.T, near.positions, axis=1)
    np.testing.assert_allclose(near.cosines, expected, atol=1e-6)


def test_no_image_is_its_own_neighbour_even_among_equals() -> None:
    near = neighbourhood(np.ones((15, 3)), 4)
    assert near.positions.shape == (15, 4)
    assert all(row not in found for row, found in enumerate(near.positions.tolist()))
    assert all(len(set(found)) == 4 for found in near.positions.tolist())


@pytest.mark.parametrize(("n", "k"), [(0, 0), (1, 0), (2, 1), (5, 4)])
def test_few_images_have_few_neighbours(n: int, k: int) -> None:
    near = neighbourhood(embeddings(n))
    assert near.positions.shape == near.cosines.shape == (n, k)
    labels = np.zeros(n, dtype=np.int64)
    assert suspect_labels(near, labels, 3).tolist() == []


def test_broken_embeddings_are_refused() -> None:
    rows = embeddings()
    rows[3, 1] = math.nan
    with pytest.raises(UsageError, match="embedding 3 of 40 is not finite"):
        neighbourhood(rows)


def test_an_image_among_another_class_is_found() -> None:
    labels = np.array([0] * 12 + [1] * 12)
    rows = np.eye(2)[labels] + 0.01 * embeddings(24, 2)
    rows[5] = [0.02, 1.0]
    near = neighbourhood(rows, 5)
    assert suspect_labels(near, labels, 3).tolist() == [5]


def test_an_image_that_is_alone_in_its_class_is_no_suspect() -> None:
    labels = np.array([0] * 12 + [1] * 4)
    rows = np.ones((16, 2)) + 0.01 * embeddings(16, 2)  # nobody can tell the two apart
    assert suspect_labels(neighbourhood(rows), labels, 9).tolist() == []
    labels[12:] = [1, 2, 3, 4]
    assert suspect_labels(neighbourhood(rows), labels, 9).tolist() == []
    labels = np.array([0] * 11 + [1] * 6)
    rows = np.ones((17, 2)) + 0.01 * embeddings(17, 2)
    suspects = suspect_labels(neighbourhood(rows), labels, 9)
    assert len(suspects) > 0  # five companions could have stood there instead
    assert labels[suspects].min() == 1

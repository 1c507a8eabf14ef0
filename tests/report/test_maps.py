from __future__ import annotations

import numpy as np
import pytest

from maskcon._utils.errors import UsageError
from maskcon.report.maps import map_2d


def two_groups(n: int, d: int = 16) -> np.ndarray:
    generator = np.random.default_rng(0)
    centres = np.zeros((2, d))
    centres[0, 0], centres[1, 1] = 5.0, 5.0
    return centres[np.arange(n) % 2] + generator.normal(0, 0.3, (n, d))


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 12])
def test_any_number_of_points_gets_a_finite_place(n: int) -> None:
    points = map_2d(two_groups(n), seed=0)
    assert points.shape == (n, 2)
    assert points.dtype == np.float32
    assert np.isfinite(points).all()


def test_groups_that_are_apart_stay_apart_on_the_map() -> None:
    points = map_2d(two_groups(60), seed=1)
    middle = points[0::2].mean(axis=0), points[1::2].mean(axis=0)
    nearest_is_own = [
        np.linalg.norm(point - middle[i % 2]) < np.linalg.norm(point - middle[1 - i % 2])
        for i, point in enumerate(points)
    ]
    assert np.mean(nearest_is_own) > 0.95


def test_the_same_seed_gives_the_same_map() -> None:
    embeddings = two_groups(40)
    np.testing.assert_array_equal(map_2d(embeddings, seed=3), map_2d(embeddings, seed=3))


def test_length_of_an_embedding_does_not_matter() -> None:
    embeddings = two_groups(20)
    np.testing.assert_allclose(map_2d(2 * embeddings), map_2d(embeddings))


def test_equal_zero_and_one_dimensional_embeddings_have_a_map() -> None:
    for embeddings in (np.ones((9, 4)), np.zeros((9, 4)), np.arange(1.0, 10.0)[:, None], np.zeros((9, 0))):
        assert np.isfinite(map_2d(embeddings)).all()


def test_wrong_input_is_refused_with_its_reason() -> None:
    with pytest.raises(UsageError, match="embedding 2 of 5 is not finite"):
        map_2d(np.where(np.arange(5)[:, None] == 2, np.nan, two_groups(5)))

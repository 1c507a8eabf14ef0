"""Scores of embeddings without labels, on data whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

from maskcon.discovery.spread_scores import (
    SHRINKAGE,
    alpha_req,
    intrinsic_dimension,
    learnability,
    lidar,
    rankme,
    spread_scores,
)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0])
def test_alpha_req_finds_the_exponent_of_a_power_law(alpha):
    random = np.random.default_rng(0)
    axes = np.linalg.qr(random.standard_normal((200, 20)) - 0.0)[0]
    axes -= axes.mean(axis=0)
    axes = np.linalg.qr(axes)[0]  # centred and orthonormal
    vectors = axes * np.arange(1.0, 21) ** (-alpha / 2) + 7.0
    assert alpha_req(vectors) == pytest.approx(abs(alpha - 1), abs=1e-6)


def test_lidar_matches_the_generalised_eigenvalues():
    views = np.random.default_rng(1).standard_normal((50, 3, 6)) + 2 * np.random.default_rng(
        2
    ).standard_normal((50, 1, 6))
    means = views.mean(axis=1)
    within = sum(
        np.outer(view - mean, view - mean) for image, mean in zip(views, means, strict=True) for view in image
    )
    within = within / (50 * 2) + SHRINKAGE * np.eye(6)
    values = scipy.linalg.eigh(np.cov(means.T), within, eigvals_only=True)
    share = values / values.sum()
    assert lidar(views) == pytest.approx(np.exp(-(share * np.log(share)).sum()))


def test_lidar_of_identical_images_is_one():
    assert lidar(np.ones((10, 3, 4))) == 1.0


def test_learnability_is_high_for_clusters_and_low_for_noise():
    random = np.random.default_rng(0)
    centres = np.eye(20)[np.arange(400) % 20]
    assert learnability(centres + 0.01 * random.standard_normal((400, 20))) > 0.95
    assert learnability(random.standard_normal((400, 20))) < 0.8


def test_intrinsic_dimension_of_a_circle_is_one_and_of_a_sphere_two():
    random = np.random.default_rng(0)
    angle = random.uniform(0, 2 * np.pi, 1000)
    assert intrinsic_dimension(np.stack([np.cos(angle), np.sin(angle)], axis=1)) == pytest.approx(1, abs=0.1)
    assert intrinsic_dimension(random.standard_normal((1000, 3))) == pytest.approx(2, abs=0.2)


def test_collapsed_and_tiny_embeddings_have_finite_scores_but_for_the_slope():
    for views in (
        np.ones((30, 3, 4)),
        np.ones((1, 2, 3)),
        np.random.default_rng(0).standard_normal((3, 2, 4)),
    ):
        scores = spread_scores(views)
        assert all(np.isfinite(value) for name, value in scores.items() if name != "alpha_req")


def test_rankme_counts_directions():
    assert rankme(np.ones((50, 8))) == pytest.approx(1)
    assert rankme(np.zeros((5, 3))) == 1
    assert rankme(np.eye(8)) == pytest.approx(8)
    assert rankme(np.repeat([[1.0, 0, 0], [0, 2.0, 0]], 20, axis=0)) == pytest.approx(2)  # rows are made unit

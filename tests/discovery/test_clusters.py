"""The Ward tree and the number of kinds that it suggests."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage
from sklearn.cluster import KMeans

from maskcon.discovery.clusters import LEAVES, PRICE, SURE, Tree, distances, fit_space, nearest, suggest
from tests.discovery.generated import cloud, clustered


def tree_of(embedded) -> Tree:
    return Tree(fit_space(embedded.vectors).project(embedded.vectors).astype(np.float64))


def sum_of_squares(points: np.ndarray) -> float:
    return float(((points - points.mean(0)) ** 2).sum())


def ward_oracle(points: np.ndarray) -> list[float]:
    """Merge the pair that increases the sum of squares least, until one group is left."""
    groups = [points[i : i + 1] for i in range(len(points))]
    increases = []
    while len(groups) > 1:
        best = min(
            itertools.combinations(range(len(groups)), 2),
            key=lambda pair: (
                sum_of_squares(np.concatenate([groups[pair[0]], groups[pair[1]]]))
                - sum_of_squares(groups[pair[0]])
                - sum_of_squares(groups[pair[1]])
            ),
        )
        a, b = groups[best[0]], groups[best[1]]
        both = np.concatenate([a, b])
        increases.append(sum_of_squares(both) - sum_of_squares(a) - sum_of_squares(b))
        groups = [group for i, group in enumerate(groups) if i not in best] + [both]
    return increases


@pytest.mark.parametrize("seed", range(5))
def test_increases_match_the_ward_oracle_and_sum_to_the_total(seed):
    points = np.random.default_rng(seed).standard_normal((14, 3))
    tree = Tree(points)
    np.testing.assert_allclose(tree.increases, np.sort(ward_oracle(points)), rtol=1e-9)
    assert tree.increases.sum() == pytest.approx(sum_of_squares(points))
    assert tree.spread == pytest.approx(sum_of_squares(points) / 14)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("sizes", [(60, 60), (200, 50, 50), (80,) * 5, (40,) * 9])
def test_known_kinds_are_counted(sizes, seed):
    tree = tree_of(clustered(sizes, seed=seed)[0])
    found = suggest(tree, tree.spread)
    assert (found.kinds, found.reason) == (len(sizes), "")
    assert found.coarser < found.kinds < found.finer
    assert found.evidence is not None
    assert found.evidence >= SURE


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("decay", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("count", [40, 500])
def test_a_normal_distribution_of_any_shape_is_one_kind(decay, count, seed):
    tree = tree_of(cloud(count, seed=seed, decay=decay))
    for scale in (1.0, 2.0):
        found = suggest(tree, tree.spread, scale)
        assert found.kinds == 1
        assert found.reason


@pytest.mark.parametrize("seed", range(4))
def test_a_uniform_square_is_one_kind_and_a_grid_of_dots_is_not(seed):
    random = np.random.default_rng(seed)
    assert suggest(Tree(random.random((400, 2))), 1 / 6).kinds == 1
    dots = np.array(list(itertools.product(range(3), repeat=2)))[np.arange(450) % 9]
    tree = Tree(dots + 0.02 * random.standard_normal((450, 2)))
    assert suggest(tree, tree.spread).kinds == 9


def test_the_price_decides_between_outer_and_inner_kinds():
    random = np.random.default_rng(0)
    outer = 4 * np.eye(6)[:3]
    inner = 0.55 * np.eye(6)[3:5]
    truth = np.arange(480) % 6
    points = outer[truth // 2] + inner[truth % 2] + 0.05 * random.standard_normal((480, 6))
    tree = Tree(points - points.mean(0))
    assert suggest(tree, tree.spread).kinds == 3
    assert suggest(tree, tree.spread, scale=0.1).kinds == 6
    assert suggest(tree, tree.spread).coarser == 2


def test_curve_gives_the_price_of_each_number():
    tree = tree_of(clustered((100, 100, 100))[0])
    curve = suggest(tree, tree.spread).curve
    assert len(curve) == 19
    assert list(curve) == sorted(curve, reverse=True)
    assert curve[1] > PRICE > curve[2]  # three kinds, not four


def test_a_class_that_varies_more_than_the_others_is_not_shattered():
    tree = tree_of(clustered((100, 100))[0])
    assert suggest(tree, tree.spread / 1000).kinds <= 4


@pytest.mark.parametrize(
    ("points", "reason"),
    [
        (np.zeros((1, 2)), "a single image"),
        (np.zeros((50, 2)), "the embeddings of its images are equal"),
        (np.eye(3), "too few images to find kinds"),
        (1e-5 * np.random.default_rng(0).standard_normal((50, 4)), "the embeddings of its images are equal"),
    ],
)
def test_degenerate_classes_are_one_kind_with_a_reason(points, reason):
    tree = Tree(points)
    found = suggest(tree, tree.spread)
    assert (found.kinds, found.coarser, found.reason) == (1, 1, reason)
    assert found.finer <= len(points)


def test_split_never_makes_more_kinds_than_different_images():
    points = np.repeat(np.eye(3), 10, axis=0)
    centres, labels = Tree(points).split(7)
    assert len(centres) == 3
    assert sorted(np.bincount(labels)) == [10, 10, 10]


def test_split_is_the_best_of_many_starts_on_the_whole_sample():
    random = np.random.default_rng(0)
    points = random.standard_normal((900, 12)) * np.array([1.0, 0.9, *[0.8] * 10])
    tree = Tree(points)
    centres, labels = tree.split(6)
    assert len(tree.merges) == LEAVES - 1
    single = [KMeans(6, n_init=1, random_state=seed).fit(points).inertia_ for seed in range(10)]
    within = float(((points - centres[labels]) ** 2).sum())
    assert within <= min(single) * (1 + 1e-6)
    assert within < KMeans(6, init=ward_means(points[:LEAVES], 6), n_init=1).fit(points).inertia_
    np.testing.assert_allclose(centres, [points[labels == kind].mean(0) for kind in range(6)])


def ward_means(points: np.ndarray, kinds: int) -> np.ndarray:
    labels = fcluster(linkage(points, "ward"), kinds, "maxclust")
    return np.stack([points[labels == label].mean(0) for label in np.unique(labels)])


def test_stability_is_one_for_clear_kinds_and_low_for_none():
    clear, unclear = tree_of(clustered((60, 60, 60))[0]), tree_of(cloud(300))
    assert clear.stability(clear.split(3)[1]) == pytest.approx(1)
    assert unclear.stability(unclear.split(3)[1]) < 0.6


@pytest.mark.parametrize(("kinds", "known"), [(60, False), (16, False), (15, True)])
def test_stability_is_unknown_where_halves_hold_fewer_than_two_images_per_kind(kinds, known):
    tree = tree_of(cloud(60))
    assert (tree.stability(tree.split(kinds)[1]) is not None) == known


def test_distances_match_the_loop_oracle():
    random = np.random.default_rng(0)
    points, centres = random.standard_normal((7, 4)), random.standard_normal((3, 4))
    slow = [[np.linalg.norm(point - centre) for centre in centres] for point in points]
    np.testing.assert_allclose(distances(points, centres), slow, atol=1e-12)
    assert nearest(points, centres).tolist() == np.argmin(slow, axis=1).tolist()


def test_rows_of_zeros_and_of_any_scale_are_projected():
    vectors = np.random.default_rng(0).standard_normal((20, 5)).astype(np.float32)
    vectors[3] = 0
    space = fit_space(vectors)
    np.testing.assert_allclose(space.project(7 * vectors), space.project(vectors), atol=1e-6)
    assert np.isfinite(space.project(vectors)).all()

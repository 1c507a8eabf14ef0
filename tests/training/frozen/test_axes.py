from __future__ import annotations

import numpy as np
import pytest

from maskcon.training.frozen import features as axes
from maskcon.training.frozen.features import along, leading_axes, partly_whitened, root_mean_square


def some_features(count: int = 300, views: int = 2, size: int = 12) -> np.ndarray:
    """Far more along some directions than along others, and away from the origin, as features of a net are."""
    random = np.random.default_rng(0)
    turned = np.linalg.qr(random.normal(size=(size, size)))[0]
    return (random.normal(size=(count, views, size)) * 0.6 ** np.arange(size) + 0.5) @ turned


def test_axes_are_the_right_singular_vectors_of_the_features() -> None:
    features = some_features()
    found, sizes = leading_axes(features, 5)
    expected = np.linalg.svd(features.reshape(-1, 12), full_matrices=False)[2][:5].T
    assert found.dtype == np.float32
    np.testing.assert_allclose(
        np.abs((found * expected).sum(axis=0)), 1, atol=1e-5
    )  # the same up to their side
    np.testing.assert_allclose(found.T @ found, np.eye(5), atol=1e-5)
    np.testing.assert_allclose(sizes, np.sqrt(np.square(features @ found).mean(axis=(0, 1))), rtol=1e-5)


def test_all_axes_keep_every_angle() -> None:
    features = some_features().astype(np.float32)
    turned = along(features, leading_axes(features, 12)[0])
    flat, flat_turned = features.reshape(-1, 12), turned.reshape(-1, 12)
    np.testing.assert_allclose(flat @ flat.T, flat_turned @ flat_turned.T, atol=1e-3)


def test_the_side_of_an_axis_does_not_depend_on_the_side_of_the_features() -> None:
    features = some_features()
    np.testing.assert_allclose(leading_axes(features, 4)[0], leading_axes(-features, 4)[0], atol=1e-6)
    found, _ = leading_axes(features, 4)
    assert (found[np.abs(found).argmax(axis=0), np.arange(4)] > 0).all()


def test_features_are_read_in_parts_and_a_large_set_by_a_spread_of_it(monkeypatch) -> None:
    features = some_features(count=3001)
    whole, _ = leading_axes(features, 3)
    monkeypatch.setattr(axes, "ROWS", 7)
    np.testing.assert_allclose(leading_axes(features, 3)[0], whole, atol=1e-5)
    monkeypatch.setattr(axes, "LOOKED_AT", 2000)
    assert (np.abs((leading_axes(features, 3)[0] * whole).sum(axis=0)) > 0.99).all()
    np.testing.assert_allclose(along(features, whole), features @ whole, atol=1e-5)


def test_features_of_no_size_have_axes_too() -> None:
    found, sizes = leading_axes(np.zeros((3, 1, 4), dtype=np.float16), 4)
    np.testing.assert_allclose(found.T @ found, np.eye(4), atol=1e-6)
    np.testing.assert_array_equal(partly_whitened(found, sizes), found)


def test_each_axis_is_divided_by_a_power_of_its_size() -> None:
    features = some_features().astype(np.float32)
    axes_found, sizes = leading_axes(features, 8)  # the others are smaller than the floor
    whitened = along(features, partly_whitened(axes_found, sizes))
    along_each = np.sqrt(np.square(whitened).mean(axis=(0, 1)))
    np.testing.assert_allclose(along_each, sizes ** (1 - axes.WHITENING), rtol=1e-3)


def test_directions_without_images_are_not_blown_up() -> None:
    features = some_features(count=4, views=1).astype(np.float32)  # fill 4 of 12 axes
    axes_found, sizes = leading_axes(features, 12)
    gain = np.linalg.norm(partly_whitened(axes_found, sizes), axis=0)
    assert gain.max() / gain[0] <= (1 + 1e-5) * axes.SMALLEST_AXIS**-axes.WHITENING


def test_the_size_of_features_is_their_root_mean_square() -> None:
    features = np.random.default_rng(0).normal(3, 2, (2500, 2, 5)).astype(np.float16)
    expected = np.sqrt(np.square(features.astype(np.float64)).mean())
    assert root_mean_square(features) == pytest.approx(expected)
    assert root_mean_square(np.zeros((3, 1, 4))) == 1.0  # nothing to divide by

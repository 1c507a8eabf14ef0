"""What may be given to the estimator, in which shapes and scales, and what it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from PIL import Image
from sklearn.exceptions import NotFittedError

from maskcon._utils.errors import DataError, UsageError
from tests.sklearn_estimator.embedders import FEATURES, GREY, LABELS, tiny


def test_every_way_to_give_grey_images_gives_the_same_embedding(fitted, embedded):
    ways = {
        "one channel last": (GREY[..., None], {}),
        "one channel first": (GREY[:, None], {"channels": "first"}),
        "flattened": (GREY.reshape(48, -1), {"image_shape": (16, 16)}),
        "one side open": (GREY.reshape(48, -1), {"image_shape": (-1, 16)}),
        "nested lists": (GREY.tolist(), {"pixel_range": (0, 255)}),
        "wider integers": (GREY.astype(np.int64), {"pixel_range": (0, 255)}),
        "shares of white": (GREY / 255, {"pixel_range": (0.0, 1.0)}),
        "column order": (np.asfortranarray(GREY), {}),
    }
    for way, (X, parameters) in ways.items():  # noqa: N806
        np.testing.assert_array_equal(tiny(**parameters).fit(X, LABELS).transform(X), embedded, err_msg=way)
    np.testing.assert_array_equal(fitted.transform(GREY.reshape(48, -1)), embedded)


def test_colour_is_read_where_channels_says_and_never_guessed():
    # H x W x C = 3 x 16 x 3: both readings are possible
    last = np.random.default_rng(0).integers(0, 256, (24, 3, 16, 3), dtype=np.uint8)
    first = np.ascontiguousarray(last.transpose(0, 3, 1, 2))  # [N, C, H, W]
    labels = np.arange(24) % 2
    by_last = tiny(epochs=1).fit(last, labels)
    by_first = tiny(epochs=1, channels="first").fit(first, labels)
    np.testing.assert_array_equal(by_last.transform(last), by_first.transform(first))
    misread = tiny(epochs=1, channels="first").fit(last, labels)
    assert (misread.transform(last) != by_last.transform(last)).any()
    assert by_last.encoder_.in_channels == 3


def test_floats_are_spread_between_the_extremes_that_fit_saw():
    X = GREY.astype(np.float64) / 10 - 3  # noqa: N806
    embedder = tiny(epochs=1).fit(X, LABELS)
    assert embedder.pixel_range_ == (X.min(), X.max())
    wider = X.copy()
    wider[0, 0, 0] = X.max() + 5
    clipped = np.minimum(wider, X.max())
    np.testing.assert_array_equal(embedder.transform(wider), embedder.transform(clipped))


@pytest.mark.parametrize("change", [lambda image: image / 255.0, lambda image: image.astype(int) + 200])
def test_images_on_another_scale_than_in_fit_are_warned_of_where_they_are_given(fitted, change):
    with pytest.warns(UserWarning, match="scale of fit") as caught:
        fitted.transform(change(GREY))
    assert caught[0].filename == __file__


def test_methods_without_labels_ignore_those_given():
    plain = tiny(method="selfcon", epochs=1).fit(GREY).transform(GREY)
    np.testing.assert_array_equal(tiny(method="selfcon", epochs=1).fit(GREY, LABELS).transform(GREY), plain)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"method": "maskcom"}, "did you mean 'maskcon'"),
        ({"preset": "gpu"}, "unknown preset 'gpu'"),
        ({"settings": {"bakbone": "resnet6"}}, "did you mean 'backbone'"),
        ({"settings": {"seed": 3}}, "random_state"),
        ({"settings": {"train_limit": 8}}, "train_limit cannot be set"),
        ({"settings": {"evaluate_on": "validation"}}, "evaluate_on cannot be set"),
        ({"views": "sign"}, "did you mean 'signs'"),
        ({"device": "gpu"}, "unknown device 'gpu'"),
        ({"channels": "middle"}, "unknown value for channels 'middle'"),
        ({"epochs": 0}, "epochs=0"),
        ({"w": 1.5}, "w=1.5"),
        ({"pixel_range": (5, 5)}, "pixel_range=(5, 5)"),
        ({"n_jobs": 0}, "n_jobs"),
    ],
    ids=lambda value: str(value),
)
def test_what_cannot_be_used_is_refused_by_fit_with_the_value(changes, part):
    with pytest.raises(ValueError) as caught:
        tiny(**changes).fit(GREY, LABELS)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("X", "y", "part"),
    [
        (GREY, None, "requires y"),
        (GREY, np.zeros(48), "y has 1 class"),
        (GREY, LABELS[:40], "inconsistent numbers of samples"),
        (GREY, np.linspace(0, 1, 48), "Unknown label type"),
        (GREY, np.array([None, *LABELS[1:]], dtype=object), "y[0] is None"),
        (GREY, np.array([*LABELS[1:], math.nan], dtype=object), "y[47] is nan"),
        (GREY[:3], LABELS[:3], "n_samples=3"),
        (GREY.reshape(48, -1), LABELS, "image_shape=(H, W)"),
        (GREY[:, None], LABELS, "did you mean channels='first'"),
        (GREY[..., None, None], LABELS, "[48, 16, 16, 1, 1]"),
        (np.full((48, 4, 4), np.nan), LABELS, "NaN"),
        (np.zeros((48, 8, 8, 4)), LABELS, "4 channels"),
        (np.zeros((48, 0, 8)), LABELS, "0 feature(s)"),
        (np.zeros((0, 8, 8)), LABELS[:0], "0 sample(s)"),
        (np.array([[-1e308, 1e308]] * 48)[:, :, None], LABELS, "too far apart"),
        ("photo.jpg", LABELS, "a list of images"),
        ([GREY[0], GREY[1, :8]] * 24, LABELS, "several shapes"),
        (["missing.jpg"] * 4, LABELS[:4], "missing.jpg"),
        (["missing.jpg"] * 4, LABELS[:3], "inconsistent numbers of samples"),  # before any of them is read
    ],
)
def test_data_that_cannot_be_trained_on_is_refused_with_the_reason(X, y, part):  # noqa: N803
    with pytest.raises(ValueError) as caught:
        tiny().fit(X, y)
    assert part in str(caught.value)


def test_images_of_another_shape_are_refused_even_with_as_many_values(fitted):
    with pytest.raises(DataError, match=r"\(8, 32\).*\(16, 16\)"):
        fitted.transform(GREY.reshape(48, 8, 32))
    with pytest.raises(ValueError, match="expecting 256 features"):
        fitted.transform(GREY[:, :8])
    with pytest.raises(DataError, match="fitted on an array"):
        fitted.transform(["photo.jpg"])


def test_one_that_is_not_fitted_says_so():
    with pytest.raises(NotFittedError):
        tiny().transform(GREY)
    with pytest.raises(NotFittedError):
        tiny().get_feature_names_out()


def test_pictures_that_can_be_read_only_once_are_refused_and_none_is_lost(tmp_path):
    pictures = (Image.fromarray(image) for image in GREY)
    with pytest.raises(UsageError, match=r"generator.*list\(X\)"):
        tiny(method="selfcon").fit(pictures)
    assert len(list(pictures)) == 48


def test_one_of_several_processes_of_a_launcher_is_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="one process"):
        tiny(epochs=1).fit(GREY, LABELS)


def test_images_smaller_than_the_encoder_can_halve_are_enlarged():
    embedder = tiny(epochs=1).fit(GREY[:, :5, :3], LABELS)
    assert (embedder.config_.image_size, embedder.image_shape_) == (16, (5, 3))


def test_the_sides_of_a_wide_image_count():
    wide = np.zeros((24, 4, 40), dtype=np.uint8)
    wide[:, :, 18:22] = 128
    wide[::2, :, 36:] = 255  # only the right end tells the classes apart
    features = tiny(epochs=1).fit(wide, np.arange(24) % 2).transform(wide)
    assert np.abs(features[0] - features[1]).max() > 1e-3


def test_files_and_pillow_images_of_any_size_and_mode(tmp_path):
    generator = np.random.default_rng(0)
    paths, pictures = [], []
    for number in range(12):
        size = (20 + number, 30 - number)
        pixels = generator.integers(0, 256, (*size, 3), dtype=np.uint8)
        picture = Image.fromarray(pixels).convert("L" if number % 3 == 0 else "RGB")
        path = tmp_path / f"picture {number}.png"
        picture.save(path)
        paths.append(path)
        pictures.append(picture)
    labels = ["a", "b"] * 6
    embedder = tiny(epochs=1, image_size=16).fit(paths, labels)
    found = embedder.transform(paths)
    assert found.shape == (12, FEATURES)
    np.testing.assert_array_equal(embedder.transform(pictures), found)
    np.testing.assert_array_equal(embedder.transform(np.array([str(path) for path in paths])), found)
    assert embedder.image_shape_ is None
    with pytest.raises(DataError, match="fitted on files"):
        embedder.transform(GREY)


def test_a_setting_that_belongs_to_the_run_is_refused():
    with pytest.raises(UsageError, match="source"):
        tiny(settings={"source": "embedded"}).fit(GREY, LABELS)

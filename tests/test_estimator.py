"""The scikit-learn estimator: scikit-learn's own checks, and what is particular to images."""

from __future__ import annotations

import math
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import joblib
import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

import maskcon
from maskcon import estimator, passing_run, views
from maskcon.encoder import build_backbone
from maskcon.engine import loop
from maskcon.engine.signals import Interrupted
from maskcon.errors import DataError, UsageError
from maskcon.estimator import MaskConEmbedder
from maskcon.methods import all_methods
from maskcon.passing_run import _interrupts_as_usual, dataset_of
from maskcon.views.policies import POLICIES
from tests.miniature import miniature

SOURCE = Path(__file__).parents[1] / "src"
TINY_NET = {"backbone": "resnet6", "width": 8, "projector_hidden": 16, "projection_dim": 8}
FEATURES = 16
# scikit-learn's checks give rows of 1 to 30 numbers: pictures one pixel high
ROWS_AS_PICTURES = (1, -1)

DATA = miniature(train=48, test=4).train
GREY = DATA.images[:, 0]  # uint8 [48, 16, 16]
LABELS = np.array(["stripes", "checks"])[DATA.coarse]


def tiny(**changes) -> MaskConEmbedder:
    given = {"epochs": 2, "random_state": 0, "device": "cpu", "settings": TINY_NET, **changes}
    return MaskConEmbedder(**given)


@pytest.fixture(scope="module")
def fitted() -> MaskConEmbedder:
    return tiny().fit(GREY, LABELS)


@pytest.fixture(scope="module")
def embedded(fitted) -> np.ndarray:
    return fitted.transform(GREY)


# No check is expected to fail: nothing is passed as expected_failed_checks.
@parametrize_with_checks([tiny(image_shape=ROWS_AS_PICTURES, epochs=1)])
def test_scikit_learns_checks_pass(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    "check",
    [
        estimator_checks.check_get_feature_names_out_error,
        estimator_checks.check_transformer_get_feature_names_out,
        estimator_checks.check_transformer_get_feature_names_out_pandas,
        estimator_checks.check_set_output_transform,
        estimator_checks.check_set_output_transform_pandas,
        estimator_checks.check_dataframe_column_names_consistency,
        estimator_checks.check_readonly_memmap_input,
    ],
    ids=lambda check: check.__name__,
)
def test_checks_that_scikit_learn_runs_on_its_own_estimators_pass(check):
    check("MaskConEmbedder", tiny(image_shape=ROWS_AS_PICTURES, epochs=1))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["selfcon", "coins"])
def test_scikit_learns_checks_pass_for_methods_with_other_needs(method):
    embedder = tiny(image_shape=ROWS_AS_PICTURES, epochs=1, method=method)
    results = estimator_checks.check_estimator(embedder, on_skip=None)
    assert {result["status"] for result in results} <= {"passed", "skipped"}


def test_the_checks_are_run_and_not_left_out_by_a_tag():
    names = {
        check.func.__name__
        for _, check in estimator_checks_generator(tiny(image_shape=ROWS_AS_PICTURES), mark=None)
    }
    assert len(names) > 35
    assert {"check_transformer_general", "check_requires_y_none", "check_methods_subset_invariance"} <= names


def test_it_is_reached_lazily_and_importing_the_package_loads_no_scikit_learn():
    code = "import sys, maskcon; print('sklearn' in sys.modules, 'MaskConEmbedder' in dir(maskcon))"
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "True"]
    assert maskcon.MaskConEmbedder is MaskConEmbedder


def test_embeddings_are_unit_rows_of_the_encoders_size(fitted, embedded):
    assert (embedded.shape, embedded.dtype) == ((48, FEATURES), np.float32)
    np.testing.assert_allclose(np.linalg.norm(embedded, axis=1), 1, rtol=1e-6)
    plain = clone(fitted).set_params(normalize=False).fit(GREY, LABELS).transform(GREY)
    lengths = np.linalg.norm(plain, axis=1, keepdims=True)
    assert lengths.std() > 0
    np.testing.assert_allclose(plain / lengths, embedded, atol=1e-6)


def test_fitted_attributes_tell_what_was_learnt(fitted):
    assert fitted.classes_.tolist() == ["checks", "stripes"]
    assert (fitted.n_features_in_, fitted.image_shape_, fitted.pixel_range_) == (256, (16, 16), (0.0, 255.0))
    assert isinstance(fitted.encoder_, torch.nn.Module)
    assert fitted.config_.epochs == len(fitted.loss_curve_) == 2
    assert np.isfinite(fitted.loss_curve_).all()
    names = fitted.get_feature_names_out()
    assert (len(names), names[0]) == (FEATURES, "maskconembedder0")


def test_the_weights_are_those_of_maskcon_fit_with_the_same_settings(fitted, tmp_path):
    order = {"checks": 0, "stripes": 1}
    labels = np.array([order[name] for name in LABELS], dtype=np.int64)
    data = dataset_of(GREY[:, None], None, labels, ("checks", "stripes"), "signs", fine=False)
    settings = fitted.config_.model_dump(exclude={"source", "method", "preset"})
    run = maskcon.fit(data, method="maskcon", preset="cpu", settings=settings, out=tmp_path / "run")
    features = run.encode(GREY[:, None]).numpy()
    np.testing.assert_array_equal(
        features, clone(fitted).set_params(normalize=False).fit(GREY, LABELS).transform(GREY)
    )


def test_the_same_random_state_gives_the_same_bits_and_another_one_others(embedded):
    np.testing.assert_array_equal(tiny().fit_transform(GREY, LABELS), embedded)
    assert (tiny(random_state=1).fit_transform(GREY, LABELS) != embedded).any()


def test_a_random_state_object_or_numpys_own_state_gives_the_seed():
    seeds = [
        tiny(random_state=np.random.RandomState(s), epochs=1).fit(GREY, LABELS).config_.seed
        for s in (3, 3, 4)
    ]
    assert seeds[0] == seeds[1] != seeds[2]
    np.random.seed(3)  # noqa: NPY002
    assert tiny(random_state=None, epochs=1).fit(GREY, LABELS).config_.seed == seeds[0]


def test_fitting_leaves_random_states_and_the_disk_as_they_were(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = (torch.get_rng_state(), np.random.get_state()[1].copy())  # noqa: NPY002
    tiny(epochs=1).fit(GREY, LABELS).transform(GREY)
    assert torch.equal(torch.get_rng_state(), before[0])
    np.testing.assert_array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002
    left = [path.name for path in tmp_path.iterdir() if not path.name.startswith("torch")]  # its own caches
    assert left == []


def test_n_jobs_is_the_number_of_torchs_threads_while_it_works_and_no_longer(monkeypatch):
    asked = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    embedder = tiny(epochs=1, n_jobs=3).fit(GREY, LABELS)
    assert asked == [3, 7]
    embedder.transform(GREY)
    assert asked == [3, 7, 3, 7]
    embedder.set_params(n_jobs=None).transform(GREY)
    assert len(asked) == 4


def test_fits_in_threads_give_what_they_give_alone(embedded):
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: tiny().fit(GREY, LABELS).transform(GREY), range(3)))
    for features in found:
        np.testing.assert_array_equal(features, embedded)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_reaches_the_caller_as_python_raises_it(number):
    expected = KeyboardInterrupt if number == signal.SIGINT else SystemExit
    with pytest.raises(expected) as caught, _interrupts_as_usual():
        raise Interrupted("stopped", number)
    assert number == signal.SIGINT or caught.value.code == 143


def test_ctrl_c_in_training_leaves_nothing_behind(tmp_path, monkeypatch):
    @dataclass(frozen=True)
    class Stopping:
        name: str = "stopping"
        draws: int = 1

        def __call__(self, images, uniforms, *, size, sizes=None):
            os.kill(os.getpid(), signal.SIGINT)
            return views.test_view(images, size=size, sizes=sizes)

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setitem(POLICIES, "stopping", Stopping())
    before = signal.getsignal(signal.SIGINT)
    embedder = tiny(settings={**TINY_NET, "query_view": "stopping"})
    with pytest.raises(KeyboardInterrupt):
        embedder.fit(GREY, LABELS)
    assert list(tmp_path.glob("maskcon-*")) == []
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(NotFittedError):
        embedder.transform(GREY)


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


@pytest.mark.parametrize("method", [method.name for method in all_methods()])
def test_every_method_can_be_chosen(method):
    needs_labels = next(m for m in all_methods() if m.name == method).labels != "none"
    embedder = tiny(method=method, epochs=1).fit(GREY, LABELS if needs_labels else None)
    assert np.isfinite(embedder.transform(GREY)).all()
    assert embedder.config_.method == method
    assert hasattr(embedder, "classes_") == needs_labels
    assert embedder.__sklearn_tags__().target_tags.required == needs_labels


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
        ({"settings": {"train_limit": 8}}, "train_limit is no setting here"),
        ({"settings": {"evaluate_on": "validation"}}, "evaluate_on is no setting here"),
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
        ("photo.jpg", LABELS, "a list of pictures"),
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


def test_a_fit_that_fails_leaves_nothing_of_an_earlier_one_to_embed_with():
    embedder = tiny(epochs=1).fit(GREY, LABELS)
    with pytest.raises(DataError):
        embedder.fit(GREY / 255, np.zeros(48))
    with pytest.raises(NotFittedError):
        embedder.transform(GREY)


def test_pictures_that_can_be_read_only_once_are_refused_and_none_is_lost(tmp_path):
    pictures = (Image.fromarray(image) for image in GREY)
    with pytest.raises(UsageError, match=r"generator.*list\(X\)"):
        tiny(method="selfcon").fit(pictures)
    assert len(list(pictures)) == 48


def test_weights_are_fetched_only_where_it_is_allowed(monkeypatch):
    allowed = []

    def refuse(config, data, folder, machine, announce):
        allowed.append(machine.download)
        raise UsageError("stop here")

    monkeypatch.setattr(passing_run, "train", refuse)
    for download in (False, True):
        with pytest.raises(UsageError, match="stop here"):
            tiny(download=download).fit(GREY, LABELS)
    assert allowed == [False, True]


def test_verbose_prints_the_run_and_every_epoch_and_changes_nothing(fitted, embedded, capsys):
    tiny().fit(GREY, LABELS)
    assert capsys.readouterr().out == ""
    telling = tiny(verbose=1).fit(GREY, LABELS)
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith(
        "MaskCon w=1 tau=0.05 on arrays: 48 images, 2 coarse classes, 16 px; resnet6 of width 8"
    )
    epochs = [line.split("  (")[0] for line in told if line.startswith("epoch ")]
    losses = [f"{loss:.3f}" for loss in telling.loss_curve_]
    assert epochs == [f"epoch   {number} of 2  loss {loss}" for number, loss in enumerate(losses, start=1)]
    assert not any("R@" in line for line in told)  # all of X is trained on: there is nothing to score by
    assert np.array_equal(telling.transform(GREY), embedded)


def test_one_of_several_processes_of_a_launcher_is_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="one process"):
        tiny(epochs=1).fit(GREY, LABELS)


def test_embedding_elsewhere_leaves_the_encoder_on_the_cpu(monkeypatch):
    embedder = tiny(epochs=1).fit(GREY, LABELS)

    def elsewhere(encoder, facts, images, sizes, device):
        encoder.to("meta")  # a device that every machine has
        return torch.ones(len(images), FEATURES)

    monkeypatch.setattr(estimator, "features_of", elsewhere)
    monkeypatch.setattr(estimator, "usable_device", lambda name: "cuda")
    assert embedder.transform(GREY).shape == (48, FEATURES)
    assert {value.device.type for value in embedder.encoder_.state_dict().values()} == {"cpu"}


def test_a_clone_is_unfitted_and_has_all_parameters(fitted):
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    assert not hasattr(copy, "encoder_")
    assert copy.set_params(w=0.25).get_params()["w"] == 0.25
    assert "w=0.25" in repr(copy)


def test_it_prints_with_a_misspelt_method_so_that_one_can_see_it():
    assert "maskcom" in repr(tiny(method="maskcom"))


def test_pickle_and_joblib_keep_the_embedding(fitted, embedded, tmp_path):
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).transform(GREY), embedded)
    joblib.dump(fitted, tmp_path / "embedder.joblib")
    np.testing.assert_array_equal(joblib.load(tmp_path / "embedder.joblib").transform(GREY), embedded)


@pytest.mark.slow
def test_another_process_reads_the_pickle_to_the_same_embedding(fitted, embedded, tmp_path):
    (tmp_path / "embedder").write_bytes(pickle.dumps(fitted))
    np.save(tmp_path / "images.npy", GREY)
    code = (
        "import pickle, numpy as np; from pathlib import Path\n"
        "embedder = pickle.loads(Path('embedder').read_bytes())\n"
        "np.save('found.npy', embedder.transform(np.load('images.npy')))"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", code], env=environment, cwd=tmp_path, check=True)
    np.testing.assert_allclose(np.load(tmp_path / "found.npy"), embedded, atol=1e-6)


def test_a_pipeline_in_a_search_over_settings_works_with_values_of_numpy():
    pipeline = make_pipeline(tiny(epochs=1), KNeighborsClassifier(1))
    grid = {
        "maskconembedder__w": np.array([0.0, 1.0]),
        "maskconembedder__batch_size": np.array([8]),
        "maskconembedder__method": np.array(["maskcon"]),
    }
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(GREY, LABELS)
    assert search.best_estimator_[0].config_.batch_size == 8
    assert search.predict(GREY[:5]).shape == (5,)


def test_small_sets_get_smaller_batches_and_banks_but_not_against_the_users_word():
    few = tiny(epochs=1).fit(GREY, LABELS).config_
    assert (few.batch_size, few.bank_size, few.image_size) == (16, 24, 16)
    asked = tiny(epochs=1, batch_size=12, bank_size=100, image_size=8).fit(GREY, LABELS).config_
    assert (asked.batch_size, asked.bank_size, asked.image_size) == (12, 100, 8)
    assert asked.learning_rate > few.learning_rate  # the preset's, where the batch is the user's


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


def test_a_fit_on_files_forgets_what_one_on_arrays_learnt(tmp_path):
    embedder = tiny(epochs=1).fit(GREY, LABELS)
    pictures = [Image.fromarray(image) for image in GREY[:8]]
    embedder.set_params(image_size=16, method="selfcon").fit(pictures)
    for name in ("n_features_in_", "pixel_range_", "classes_"):
        assert not hasattr(embedder, name)


def test_a_collapse_is_a_convergence_warning(monkeypatch):
    monkeypatch.setattr(loop, "COLLAPSED_COSINE", -1.0)
    monkeypatch.setattr(loop, "STUCK_SHARE", 0.0)
    monkeypatch.setattr(loop, "PATIENCE_EPOCHS", 0)
    monkeypatch.setattr(loop, "PATIENCE_STEPS", 0)
    with pytest.warns(ConvergenceWarning, match="collapse"):
        tiny(epochs=1).fit(GREY, LABELS)
    monkeypatch.undo()
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        tiny(epochs=1).fit(GREY, LABELS)


def test_a_setting_that_belongs_to_the_run_is_refused():
    with pytest.raises(UsageError, match="source"):
        tiny(settings={"source": "embedded"}).fit(GREY, LABELS)


def test_a_frozen_backbone_learns_a_head_and_embeds_new_images(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    torch.manual_seed(5)
    net = build_backbone("resnet6", image_size=16, in_channels=1, width=8, stem="stride2")
    net(torch.rand(64, 1, 16, 16))  # moves the running statistics
    save_file(net.state_dict(), tmp_path / "weights.safetensors")
    frozen = {**TINY_NET, "freeze": True, "weights": str(tmp_path / "weights.safetensors"), "stem": "stride2"}
    embedder = tiny(epochs=1, image_size=16, settings=frozen).fit(GREY, LABELS)
    assert np.isfinite(embedder.transform(GREY[:5])).all()
    kept = {f"backbone.{name}": value for name, value in net.state_dict().items()}
    found = embedder.encoder_.state_dict()
    assert all(torch.equal(found[name], value) for name, value in kept.items())
    assert [name for name in found if name.startswith("head.")] != []

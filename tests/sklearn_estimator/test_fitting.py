"""What the estimator learns, embeds and says, and that it leaves nothing else behind."""

from __future__ import annotations

import os
import signal
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import maskcon
from maskcon import sklearn, transforms
from maskcon._utils.errors import DataError, UsageError
from maskcon.methods.registry import all_methods
from maskcon.models import build_backbone
from maskcon.training import loop, temporary_run
from maskcon.training.signals import Interrupted
from maskcon.training.temporary_run import _interrupts_as_usual, dataset_of
from maskcon.transforms.policies import POLICIES
from tests.sklearn_estimator.embedders import FEATURES, GREY, LABELS, TINY_NET, tiny


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
            return transforms.test_view(images, size=size, sizes=sizes)

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


@pytest.mark.parametrize("method", [method.name for method in all_methods()])
def test_every_method_can_be_chosen(method):
    needs_labels = next(m for m in all_methods() if m.name == method).labels != "none"
    embedder = tiny(method=method, epochs=1).fit(GREY, LABELS if needs_labels else None)
    assert np.isfinite(embedder.transform(GREY)).all()
    assert embedder.config_.method == method
    assert hasattr(embedder, "classes_") == needs_labels
    assert embedder.__sklearn_tags__().target_tags.required == needs_labels


def test_a_fit_that_fails_leaves_nothing_of_an_earlier_one_to_embed_with():
    embedder = tiny(epochs=1).fit(GREY, LABELS)
    with pytest.raises(DataError):
        embedder.fit(GREY / 255, np.zeros(48))
    with pytest.raises(NotFittedError):
        embedder.transform(GREY)


def test_weights_are_fetched_only_where_it_is_allowed(monkeypatch):
    allowed = []

    def refuse(config, data, folder, machine, callback, test_resize):
        allowed.append(machine.download)
        raise UsageError("stop here")

    monkeypatch.setattr(temporary_run, "train", refuse)
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


def test_embedding_elsewhere_leaves_the_encoder_on_the_cpu(monkeypatch):
    embedder = tiny(epochs=1).fit(GREY, LABELS)

    def elsewhere(encoder, facts, images, sizes, device):
        encoder.to("meta")  # a device that every machine has
        return torch.ones(len(images), FEATURES)

    monkeypatch.setattr(sklearn, "features_of", elsewhere)
    monkeypatch.setattr(sklearn, "usable_device", lambda name: "cuda")
    assert embedder.transform(GREY).shape == (48, FEATURES)
    assert {value.device.type for value in embedder.encoder_.state_dict().values()} == {"cpu"}


def test_small_sets_get_smaller_batches_and_banks_but_not_against_the_users_word():
    few = tiny(epochs=1).fit(GREY, LABELS).config_
    assert (few.batch_size, few.bank_size, few.image_size) == (16, 24, 16)
    asked = tiny(epochs=1, batch_size=12, bank_size=100, image_size=8).fit(GREY, LABELS).config_
    assert (asked.batch_size, asked.bank_size, asked.image_size) == (12, 100, 8)
    assert asked.learning_rate > few.learning_rate  # the preset's, where the batch is the user's


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

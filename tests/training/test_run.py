"""What whole runs learn, say and leave behind."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import maskcon
from maskcon._utils.errors import DataError, UsageError
from maskcon.config.resolution import resolve
from maskcon.data import Dataset, ImageSet
from maskcon.methods.registry import all_methods
from maskcon.training import runner
from maskcon.training.journal import read_journal
from maskcon.training.setup import settle
from tests.miniature import miniature
from tests.training.runs import OFTEN, Told, fit, weights


@pytest.mark.parametrize("method", [m.name for m in all_methods()])
def test_every_method_trains_and_leaves_a_complete_folder(tmp_path, method):
    run = fit(tmp_path / "run", method=method, epochs=1)
    assert set(run.recall) == {1, 2, 5, 10}
    assert all(0 <= share <= 1 for share in run.recall.values())
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    for key in ("recall", "raw_pixels", "seconds", "images_per_second", "method", "w", "tau", "seed"):
        assert key in result
    assert result["method"] == method
    for name in ("encoder.safetensors", "config.yaml", "journal.jsonl", "environment.json"):
        assert (tmp_path / "run" / name).is_file()


@pytest.mark.parametrize("method", ["supfine", "maskcon"])
def test_training_improves_on_the_untrained_encoder(tmp_path, method):
    told = Told()
    schedule = {"epochs": 20, "eval_every_epochs": 20, "protocol": "reference", "learning_rate": 0.1}
    run = fit(
        tmp_path / "run",
        method=method,
        data=miniature(160, 320),
        callback=told,
        query_view="embedded-weak",
        **schedule,
    )
    untrained, trained = (values["recall"]["1"] for values in told.evaluations)
    losses = [e["loss"] for e in read_journal(run.folder / "journal.jsonl") if e["kind"] == "step"]
    assert np.mean(losses[-10:]) < np.mean(losses[:10]) - 0.3
    assert trained > untrained + 0.05


def test_the_same_settings_give_the_same_bytes_and_another_seed_others(tmp_path):
    fit(tmp_path / "a")
    fit(tmp_path / "b")
    fit(tmp_path / "c", seed=1)
    assert weights(tmp_path / "a") == weights(tmp_path / "b")
    assert weights(tmp_path / "a") != weights(tmp_path / "c")


def test_maskcon_at_infinite_temperature_trains_to_the_same_bytes_as_grafit(tmp_path):
    fit(tmp_path / "maskcon", method="maskcon", w=0.6, tau=math.inf)
    fit(tmp_path / "grafit", method="grafit", w=0.6)
    assert weights(tmp_path / "maskcon") == weights(tmp_path / "grafit")


def test_maskcon_with_weight_zero_trains_to_the_same_bytes_as_selfcon(tmp_path):
    fit(tmp_path / "maskcon", method="maskcon", w=0.0)
    fit(tmp_path / "selfcon", method="selfcon")
    assert weights(tmp_path / "maskcon") == weights(tmp_path / "selfcon")


def test_teachcon_without_its_settings_trains_to_the_same_bytes_as_maskcon(tmp_path):
    plain = {"relation_space": "projection", "coarse_weight": 0.0, "relation_warmup_epochs": 0.5}
    fit(tmp_path / "teachcon", method="teachcon", w=0.7, tau=0.05, **plain)
    fit(tmp_path / "maskcon", method="maskcon", w=0.7, tau=0.05, **plain)
    assert weights(tmp_path / "teachcon") == weights(tmp_path / "maskcon")


@pytest.mark.parametrize("teacher", ["projection", "features", "hog"])
def test_teachcon_at_infinite_temperature_trains_to_the_same_bytes_as_grafit(tmp_path, teacher):
    plain = {"relation_space": teacher, "coarse_weight": 0.0, "relation_warmup_epochs": 0.5}
    fit(tmp_path / "teachcon", method="teachcon", w=0.6, tau=math.inf, **plain)
    fit(tmp_path / "grafit", method="grafit", w=0.6, **plain)
    assert weights(tmp_path / "teachcon") == weights(tmp_path / "grafit")


def test_teachcon_with_weight_zero_is_selfcon_with_cross_entropy(tmp_path):
    """CoIns with w = 1/2 has half of both losses, which is half of the rate."""
    alike = {"relation_space": "projection", "weight_decay": 0.0}
    fit(tmp_path / "teachcon", method="teachcon", w=0.0, coarse_weight=1.0, learning_rate=0.03, **alike)
    fit(tmp_path / "coins", method="coins", w=0.5, coarse_weight=0.0, learning_rate=0.06, **alike)
    ours, theirs = (load_file(tmp_path / name / "encoder.safetensors") for name in ("teachcon", "coins"))
    for name, value in ours.items():
        torch.testing.assert_close(value, theirs[name], atol=1e-4, rtol=1e-3)


def test_bucsfr_before_its_clusters_trains_to_the_same_bytes_as_coins(tmp_path):
    fit(tmp_path / "bucsfr", method="bucsfr", w=0.5, relation_warmup_epochs=99.0)
    fit(tmp_path / "coins", method="coins", w=0.5)
    assert weights(tmp_path / "bucsfr") == weights(tmp_path / "coins")


def digits() -> Dataset:
    """Hand-written digits, 8 x 8, that scikit-learn carries; even and odd are the coarse labels."""
    from sklearn.datasets import load_digits

    bundle = load_digits()
    images = (bundle.images / 16 * 255).astype(np.uint8)[:, None]  # [N, 1, 8, 8]
    fine = bundle.target.astype(np.int64)

    def part(rows: slice) -> ImageSet:
        return ImageSet(images[rows], fine[rows] % 2, fine[rows], np.arange(len(fine))[rows])

    names = tuple("0123456789")
    parity = tuple(kind % 2 for kind in range(10))
    return Dataset(
        "digits", part(slice(0, 1400)), part(slice(1400, None)), ("even", "odd"), names, "cifar", parity
    )


@pytest.mark.parametrize(("method", "collapses"), [("maskcon", True), ("selfcon", False)])
def test_collapse_is_warned_about_once_with_the_remedy_where_it_happens(tmp_path, method, collapses):
    told = Told()
    from_step_zero = {"relation_warmup_epochs": 0.0, "warmup_epochs": 0.0, "w": 1.0, "tau": 0.1}
    run = fit(
        tmp_path / "run", data=digits(), method=method, callback=told, epochs=4, eval_every_epochs=0,
        width=16, stem="small", batch_size=128, bank_size=1024, projection_dim=64,
        **from_step_zero,
    )  # fmt: skip
    warnings = [text for text in told.messages if "collapse" in text]
    assert len(warnings) == collapses
    assert all("relation_warmup_epochs" in text for text in warnings)
    kinds = [event["kind"] for event in read_journal(run.folder / "journal.jsonl")]
    assert kinds.count("warning") == collapses


def test_evaluation_happens_after_every_nth_epoch_and_always_at_the_end(tmp_path):
    told = Told()
    fit(tmp_path / "after", callback=told, epochs=3, eval_every_epochs=2)
    assert [e["epoch"] for e in told.evaluations] == [2, 3]
    told = Told()
    fit(tmp_path / "before", callback=told, epochs=3, eval_every_epochs=2, protocol="reference")
    assert [e["epoch"] for e in told.evaluations] == [0, 2, 3]
    told = Told()
    fit(tmp_path / "end", callback=told, epochs=3, eval_every_epochs=0)
    assert [e["epoch"] for e in told.evaluations] == [3]


def test_encode_gives_the_features_that_were_scored(tmp_path):
    data = miniature()
    run = fit(tmp_path / "run", data=data)
    features = run.encode(data.test.images)
    assert features.shape[0] == len(data.test)
    recall = maskcon.recall_at_k(features, torch.from_numpy(data.test.fine))
    assert recall == pytest.approx(run.recall, abs=1e-6)
    again = maskcon.Run.open(tmp_path / "run")
    assert torch.equal(again.encode(data.test.images), features)


def test_encode_refuses_images_of_another_kind(tmp_path):
    run = fit(tmp_path / "run", epochs=1)
    with pytest.raises(UsageError, match=r"\[N, 1, H, W\]"):
        run.encode(np.zeros((2, 3, 16, 16), np.uint8))
    with pytest.raises(UsageError, match="unknown device 'gpu'"):
        run.encode(np.zeros((2, 1, 16, 16), np.uint8), device="gpu")


def test_the_stem_of_the_cpu_preset_does_not_stand_in_the_way_of_a_hugging_face_backbone():
    config = resolve("miniature", method="maskcon", preset="cpu", overrides={"backbone": "hf:any"}).config
    assert settle(config, miniature()).stem == "auto"


def test_scores_without_fine_labels_are_by_coarse_label_and_say_so(tmp_path):
    run = fit(tmp_path / "run", data=miniature(fine=False), epochs=1)
    assert run.result["scored_by"] == "coarse"


def test_data_that_cannot_be_learnt_from_is_refused(tmp_path):
    with pytest.raises(DataError, match="needs fine labels"):
        fit(tmp_path / "a", data=miniature(fine=False), method="supfine")
    tiny = miniature(8, 4)
    one_class = tiny.train.subset([0, 1, 4, 5])
    from dataclasses import replace

    with pytest.raises(DataError, match="single coarse class"):
        fit(tmp_path / "b", data=replace(tiny, train=one_class))
    with pytest.raises(DataError, match="at least 4 and 2"):
        fit(tmp_path / "c", data=replace(tiny, train=tiny.train.subset([0, 2])))
    assert not any(tmp_path.iterdir())


def test_validation_part_is_held_out_of_the_training_images(tmp_path):
    run = fit(tmp_path / "run", epochs=1, evaluate_on="validation")
    assert (run.result["train_images"], run.result["test_images"]) == (56, 16)
    assert run.result["evaluated_on"] == "validation"


def test_a_batch_that_leaves_one_image_over_and_a_bank_larger_than_the_set_work(tmp_path):
    run = fit(tmp_path / "run", data=miniature(65, 12), epochs=2, batch_size=16, bank_size=500)
    assert run.result["train_images"] == 65


def test_mixed_precision_trains(tmp_path):
    run = fit(tmp_path / "run", epochs=1, precision="bf16-mixed")
    assert 0 <= run.recall[1] <= 1


def test_float16_is_refused_on_a_cpu_instead_of_quietly_replaced(tmp_path):
    with pytest.raises(UsageError, match="bf16-mixed"):
        fit(tmp_path / "run", precision="16-mixed")
    assert not any(tmp_path.iterdir())


def test_the_gradient_norm_is_reported_without_the_scale_of_the_loss(tmp_path, monkeypatch):
    def first_norm(folder) -> float:
        events = read_journal(fit(folder, epochs=1, precision="bf16-mixed").folder / "journal.jsonl")
        return next(event["gradient_norm"] for event in events if event["kind"] == "step")

    plain = first_norm(tmp_path / "plain")
    real = runner.start

    def start_with_scaler(**options):
        processes = real(**options)
        processes.fabric.strategy.precision.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        return processes

    monkeypatch.setattr(runner, "start", start_with_scaler)
    assert first_norm(tmp_path / "scaled") == pytest.approx(plain, rel=0.01)


@pytest.mark.parametrize(
    "change",
    [
        {"batchnorm": "frozen"},
        {"protocol": "reference", "normalise": "imagenet"},
        {"relation_space": "features"},
        {"relation_space": "hog"},
        {"optimizer": "muon"},
        {"image_size": 12},
    ],
)
def test_each_setting_can_be_changed(tmp_path, change):
    run = fit(tmp_path / "run", epochs=1, **change)
    for key, value in change.items():
        assert getattr(run.config, key) == value


def test_tensorboard_without_its_extra_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    from maskcon.training import journal as recorder

    monkeypatch.setattr(recorder, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"maskcon\[tensorboard\]"):
        fit(tmp_path / "run", machine=OFTEN.model_copy(update={"tensorboard": True}))
    assert not any(tmp_path.iterdir())


def test_sync_batchnorm_without_cuda_says_what_to_use(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match=r"needs CUDA.*frozen"):
        fit(tmp_path / "run", batchnorm="sync")
    assert not any(tmp_path.iterdir())

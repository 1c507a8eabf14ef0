"""Whole runs on a miniature data set."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

import maskcon
from maskcon import training
from maskcon.config import Machine
from maskcon.engine import loop, step
from maskcon.engine.lock import FolderLock
from maskcon.engine.signals import Interrupted
from maskcon.errors import DataError, MaskconError, TrainingError, UsageError
from maskcon.methods import all_methods
from maskcon.observer import Announcer
from maskcon.presets import resolve
from maskcon.report.journal import Journal, read_journal
from maskcon.sources import Dataset, ImageSet
from tests.miniature import TINY, miniature

OFTEN = Machine(checkpoint_every_seconds=0, journal_every_steps=1, device="cpu")


class Told(Announcer):
    """Keeps what was said."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.evaluations: list[dict] = []

    def on_message(self, text: str) -> None:
        self.messages.append(text)

    def on_evaluation(self, values) -> None:
        self.evaluations.append(dict(values))


def fit(folder, *, data=None, machine=OFTEN, announce=None, method="maskcon", **changes):
    return maskcon.fit(
        data if data is not None else miniature(),
        method=method,
        out=folder,
        settings={**TINY, **changes},
        machine=machine,
        announce=announce,
    )


def weights(folder) -> bytes:
    return (folder / "encoder.safetensors").read_bytes()


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
    schedule = {"epochs": 20, "eval_every_epochs": 20, "eval_when": "before", "learning_rate": 0.1}
    run = fit(
        tmp_path / "run",
        method=method,
        data=miniature(160, 80),
        announce=told,
        query_view="embedded-weak",
        **schedule,
    )
    untrained, trained = (values["recall"]["1"] for values in told.evaluations)
    losses = [e["loss"] for e in read_journal(run.folder / "journal.jsonl") if e["kind"] == "step"]
    assert np.mean(losses[-10:]) < np.mean(losses[:10]) - 0.3
    assert trained > untrained


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


@pytest.mark.parametrize("method", ["maskcon", "coins", "supce"])
def test_a_run_broken_off_at_every_step_ends_with_the_same_bytes(tmp_path, monkeypatch, method):
    monkeypatch.setattr(loop, "PATIENCE_STEPS", 0)  # so that a warning, too, must come out the same
    fit(tmp_path / "whole", method=method)

    class BrokenError(Exception):
        pass

    real = loop.train_step
    for stop_after in range(1, 10):  # one more step each time, then the power goes
        done = []

        def step_or_die(*arguments, stop_after=stop_after, done=done):
            if len(done) == 1:
                raise BrokenError
            done.append(1)
            return real(*arguments)

        monkeypatch.setattr(loop, "train_step", step_or_die)
        try:
            fit(tmp_path / "broken", method=method)
            break
        except BrokenError:
            continue
    monkeypatch.setattr(loop, "train_step", real)
    fit(tmp_path / "broken", method=method)
    assert weights(tmp_path / "broken") == weights(tmp_path / "whole")
    whole, broken = (
        [
            {k: v for k, v in event.items() if not k.endswith("seconds")}
            for event in read_journal(tmp_path / name / "journal.jsonl")
        ]
        for name in ("whole", "broken")
    )
    assert whole == broken


def test_a_finished_run_is_not_trained_again(tmp_path):
    fit(tmp_path / "run")
    told = Told()
    before = (tmp_path / "run" / "result.json").stat().st_mtime_ns
    fit(tmp_path / "run", announce=told)
    assert "finished" in told.messages[0]
    assert (tmp_path / "run" / "result.json").stat().st_mtime_ns == before


def test_other_settings_in_the_same_folder_are_refused_with_the_difference(tmp_path):
    fit(tmp_path / "run")
    for change in ({"tau": 0.3}, {"epochs": 3}, {"width": 4}, {"seed": 9}, {"learning_rate": 0.01}):
        key = next(iter(change))
        with pytest.raises(UsageError, match=f"other settings.*{key}"):
            fit(tmp_path / "run", **change)


def test_other_data_in_the_same_folder_is_refused(tmp_path, monkeypatch):
    def stop(*_):
        raise RuntimeError("stopped")

    monkeypatch.setattr(training.Training, "_evaluate", stop)
    with pytest.raises(RuntimeError, match="stopped"):
        fit(tmp_path / "run")
    monkeypatch.undo()
    with pytest.raises(UsageError, match="other data"):
        fit(tmp_path / "run", data=miniature(seed=5))
    fit(tmp_path / "run")
    with pytest.raises(UsageError, match="other data"):  # nor is a finished run taken for one on these data
        fit(tmp_path / "run", data=miniature(seed=5))


def break_off(folder, monkeypatch, **changes) -> None:
    """Leave a run after its first step."""
    real = loop.train_step
    done = []

    def once(*arguments):
        if done:
            raise RuntimeError("broken off")
        done.append(1)
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "train_step", once)
        with pytest.raises(RuntimeError, match="broken off"):
            fit(folder, **changes)


def test_a_checkpoint_of_another_version_or_another_number_of_steps_is_refused(tmp_path, monkeypatch):
    break_off(tmp_path / "run", monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(training, "CHECKPOINT_FORMAT", 0)
        with pytest.raises(UsageError, match="another version"):
            fit(tmp_path / "run")
    with monkeypatch.context() as patch:  # as another number of processes can make it
        patch.setattr(loop, "steps_in_epoch", lambda *_, **__: 4)
        with pytest.raises(UsageError, match=r"5 steps an epoch.* 4; .*--devices"):
            fit(tmp_path / "run")
    fit(tmp_path / "run")


def test_a_run_that_began_elsewhere_while_this_one_was_loading_is_not_taken_over(tmp_path, monkeypatch):
    fit(tmp_path / "other", tau=0.3)
    config = (tmp_path / "other" / "config.yaml").read_text()

    def make_and_fill(folder):
        folder.mkdir()
        (folder / "config.yaml").write_text(config)

    monkeypatch.setattr(training, "make_writable", make_and_fill)
    with pytest.raises(UsageError, match=r"other settings.*tau"):
        fit(tmp_path / "run")
    assert (tmp_path / "run" / "config.yaml").read_text() == config


def test_a_run_stopped_before_its_first_step_keeps_its_primed_bank(tmp_path, monkeypatch):
    # 70 images in batches of 16, the last 6 left out: the primed bank holds less than the set
    changes = {"data": miniature(70), "drop_last": True, "bank_size": 200, "eval_when": "before"}
    with monkeypatch.context() as patch:
        patch.setattr(loop.StopRequest, "made", True)
        with pytest.raises(Interrupted, match="step 0 of"):
            fit(tmp_path / "stopped", **changes)
    fit(tmp_path / "stopped", **changes)
    fit(tmp_path / "whole", **changes)
    assert weights(tmp_path / "stopped") == weights(tmp_path / "whole")


def test_a_lost_encoder_of_a_finished_run_is_written_again(tmp_path):
    fit(tmp_path / "run")
    before = weights(tmp_path / "run")
    (tmp_path / "run" / "encoder.safetensors").unlink()
    fit(tmp_path / "run")
    assert weights(tmp_path / "run") == before


def test_a_full_disk_at_the_journal_says_what_to_do_and_loses_nothing(tmp_path, monkeypatch):
    real = Journal.write

    def full(self, kind, **values):
        if kind == "step" and values["step"] == 3:
            raise OSError(28, "No space left on device")
        real(self, kind, **values)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "write", full)
        with pytest.raises(MaskconError, match=r"journal.*No space left.*checkpoint is intact"):
            fit(tmp_path / "run")
    fit(tmp_path / "run")
    fit(tmp_path / "whole")
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")


def test_a_folder_of_other_things_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="not empty"):
        fit(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_second_run_in_the_same_folder_is_refused_while_the_first_one_lives(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    with FolderLock(folder), pytest.raises(UsageError, match="another run"):
        fit(folder)
    fit(folder)  # the lock went with its holder


def test_a_folder_that_cannot_be_locked_is_not_called_busy(tmp_path, monkeypatch):
    def unsupported(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("maskcon.engine.lock.fcntl.flock", unsupported)
    with pytest.raises(UsageError, match=r"cannot be locked \(Operation not supported\)"):
        fit(tmp_path / "run")


def test_an_output_folder_that_cannot_be_made_fails_before_training(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="choose another --out"):
        fit(tmp_path / "file" / "run")


def test_nan_stops_before_the_update_and_names_the_step(tmp_path, monkeypatch):
    real = step.relation_loss
    calls = []

    def poisoned(*arguments):
        calls.append(1)
        loss = real(*arguments)
        return loss * math.nan if len(calls) == 4 else loss

    monkeypatch.setattr(step, "relation_loss", poisoned)
    with pytest.raises(TrainingError, match=r"NaN or Inf at step 4, .*learning_rate"):
        fit(tmp_path / "run")
    monkeypatch.undo()
    fit(tmp_path / "run")  # goes on from the last good state
    fit(tmp_path / "whole")
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")


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
        tmp_path / "run", data=digits(), method=method, announce=told, epochs=4, eval_every_epochs=0,
        width=16, stem="small", batch_size=128, bank_size=1024, projector_hidden=256, projection_dim=64,
        **from_step_zero,
    )  # fmt: skip
    warnings = [text for text in told.messages if "collapse" in text]
    assert len(warnings) == collapses
    assert all("relation_warmup_epochs" in text for text in warnings)
    kinds = [event["kind"] for event in read_journal(run.folder / "journal.jsonl")]
    assert kinds.count("warning") == collapses


def test_evaluation_happens_after_every_nth_epoch_and_always_at_the_end(tmp_path):
    told = Told()
    fit(tmp_path / "after", announce=told, epochs=3, eval_every_epochs=2)
    assert [e["epoch"] for e in told.evaluations] == [2, 3]
    told = Told()
    fit(tmp_path / "before", announce=told, epochs=3, eval_every_epochs=2, eval_when="before")
    assert [e["epoch"] for e in told.evaluations] == [0, 2, 3]
    told = Told()
    fit(tmp_path / "end", announce=told, epochs=3, eval_every_epochs=0)
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
    assert training.settle(config, miniature()).stem == "auto"


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
    run = fit(tmp_path / "run", epochs=1, evaluate_on="validation", validation_fraction=0.25)
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
    real = training.start

    def start_with_scaler(**options):
        processes = real(**options)
        processes.fabric.strategy.precision.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        return processes

    monkeypatch.setattr(training, "start", start_with_scaler)
    assert first_norm(tmp_path / "scaled") == pytest.approx(plain, rel=0.01)


@pytest.mark.parametrize(
    "change",
    [
        {"key_update": "after"},
        {"key_buffers": "averaged", "key_batchnorm": "eval"},
        {"batchnorm": "frozen"},
        {"norm": "group"},
        {"exclude_own_keys": False},
        {"prime_bank": False},
        {"drop_last": True},
        {"channels_last": False},
        {"nesterov": True},
        {"schedule": "constant"},
        {"projector_norm": "batch"},
        {"test_resize": "both", "normalise": "imagenet"},
        {"image_size": 12},
    ],
)
def test_each_setting_can_be_changed(tmp_path, change):
    run = fit(tmp_path / "run", epochs=1, **change)
    for key, value in change.items():
        assert getattr(run.config, key) == value


def test_tensorboard_without_its_extra_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    from maskcon import observer

    monkeypatch.setattr(observer, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"maskcon\[tensorboard\]"):
        fit(tmp_path / "run", machine=OFTEN.model_copy(update={"tensorboard": True}))
    assert not any(tmp_path.iterdir())

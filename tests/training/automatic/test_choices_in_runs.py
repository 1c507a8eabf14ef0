"""Choices in a run: made once, kept, and with epochs that fit a budget."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

import maskcon
from maskcon._utils.errors import CorruptFileError, UsageError
from maskcon.config.choices import Choice
from maskcon.config.resolution import resolve
from maskcon.config.settings import Machine, RunConfig
from maskcon.training import automatic
from maskcon.training.automatic import choices_bytes
from maskcon.training.budget import Budget, Pace, epochs_within
from maskcon.training.callbacks import Callback
from maskcon.training.run_folder import CHOICES, CONFIG
from maskcon.training.setup import Assembly
from tests.miniature import TINY, miniature
from tests.training.automatic.deciding import SMALL_NET, Heard, decided

ARGUMENTS = ("source", "method", "preset")  # no settings


def fitted(photos: Path, machine: Machine, heard: Heard, **changes) -> maskcon.Run:
    settings = {**SMALL_NET, "image_size": 16, **changes.pop("settings", {})}
    return maskcon.fit(
        str(photos), choose=True, settings=settings, machine=machine, callback=heard, **changes
    )


class Unprepared:
    """What a budget is fitted to, without a learner."""

    def __init__(self, config: RunConfig) -> None:
        self.config, self.data = config, miniature()

    def prepare(self, callback: Callback, on_extract: object) -> None:
        pass


def stop_at(step: int) -> type[Heard]:
    class Stopping(Heard):
        def on_step(self, done: int, total: int, images: int, loss: float, seconds: float) -> None:
            if done == step:
                raise KeyboardInterrupt

    return Stopping


def test_a_stopped_run_goes_on_with_its_choices_whatever_has_changed_since(photos, machine, monkeypatch):
    monkeypatch.setattr("maskcon.config.choices.USUAL_LIMIT", 3)
    monkeypatch.setattr("maskcon.config.choices.ENOUGH_STEPS", 1)
    few = {"epochs": 3}
    undisturbed = fitted(photos, machine, Heard(), settings=few, out="undisturbed")
    with pytest.raises(KeyboardInterrupt):
        fitted(photos, machine, stop_at(4)(), settings=few)
    folder = Path("runs/photos-teachcon-seed0")
    stored = json.loads((folder / CHOICES).read_text())
    assert [choice["name"] for choice in stored["choices"]] == ["batch", "bank"]
    # other rules, weights that came, another pace: nothing of it is asked
    monkeypatch.setattr(automatic, "look", None)
    monkeypatch.setattr("maskcon.config.choices.SMALLEST_BATCH", 2)
    heard = Heard()
    run = fitted(photos, machine, heard, settings=few)
    assert run.folder == folder
    assert any("settings chosen when this run started" in message for message in heard.messages)
    assert len(heard.choices) == 2
    for name in (CONFIG, CHOICES, "encoder.safetensors"):
        assert (folder / name).read_bytes() == (undisturbed.folder / name).read_bytes()
    again = Heard()
    fitted(photos, machine, again, settings=few)
    assert any("finished" in message for message in again.messages)


def test_other_settings_by_hand_are_refused_with_the_difference(photos, machine):
    fitted(photos, machine, Heard(), settings={"epochs": 1})
    with pytest.raises(UsageError, match="batch_size: 16 -> 8"):
        fitted(photos, machine, Heard(), settings={"epochs": 1, "batch_size": 8})
    with pytest.raises(UsageError, match=r"started without --budget"):
        fitted(photos, machine, Heard(), budget=60.0)


def test_a_run_begun_without_choices_goes_on_without_any(photos, machine):
    given = {**TINY, "epochs": 1, "image_size": 16}
    first = maskcon.fit(str(photos), settings=given, machine=machine, out="plain")
    assert not (first.folder / CHOICES).exists()
    again = maskcon.fit(str(photos), choose=True, settings=given, machine=machine, out="plain")
    assert again.result == first.result


def test_damaged_choices_are_refused_with_a_way_out_that_works(photos, machine):
    run = fitted(photos, machine, Heard(), settings={"epochs": 1})
    (run.folder / CHOICES).write_text("{")
    with pytest.raises(
        CorruptFileError, match=r"choices\.json is damaged .* delete it and give the settings"
    ):
        fitted(photos, machine, Heard(), settings={"epochs": 1})
    (run.folder / CHOICES).unlink()
    kept = {key: value for key, value in run.config.model_dump().items() if key not in ARGUMENTS}
    assert fitted(photos, machine, Heard(), settings=kept).result == run.result


def test_choices_left_alone_by_a_kill_do_not_block_the_folder(photos, machine):
    folder = Path("runs/photos-teachcon-seed0")
    folder.mkdir(parents=True)
    (folder / CHOICES).write_text("{}")
    run = fitted(photos, machine, Heard(), settings={"epochs": 1})
    assert json.loads((run.folder / CHOICES).read_text())["choices"]


def test_a_budget_gives_the_epochs_that_fit_and_the_same_bytes_as_those_by_hand(photos, machine, monkeypatch):
    calls = []

    def pace(assembly: Assembly) -> Pace:
        calls.append(assembly.config)
        return Pace(key=0, step=1.0, evaluation=0)  # a second per image

    monkeypatch.setattr("maskcon.training.budget.measure_pace", pace)
    heard = Heard()
    run = fitted(photos, machine, heard, budget=120.0, out="budget")
    images = run.result["train_images"]
    assert run.config.epochs == int(
        0.85 * 120 / images
    )  # a little less than 120 s are left: no epoch is lost
    assert heard.choices[-1].startswith(f"epochs: {run.config.epochs} (measured here")
    kept = ("epochs", "batch_size", "bank_size", "learning_rate", "eval_every_epochs")
    rises = ("warmup_epochs", "relation_warmup_epochs")
    by_hand = {key: getattr(run.config, key) for key in (*kept, *rises)}
    plain = fitted(photos, machine, Heard(), settings=by_hand, out="by-hand")
    assert (run.folder / "encoder.safetensors").read_bytes() == (
        plain.folder / "encoder.safetensors"
    ).read_bytes()
    fitted(photos, machine, Heard(), budget=120.0, out="budget")
    assert len(calls) == 1  # the same command measures nothing
    with pytest.raises(UsageError, match=r"started with --budget 2m; give the same again"):
        fitted(photos, machine, Heard(), budget=240.0, out="budget")


def test_a_budget_gives_a_head_on_a_frozen_backbone_a_hundred_epochs_at_most(monkeypatch):
    quick = Pace(key=0, step=1e-6, evaluation=0)
    monkeypatch.setattr("maskcon.training.budget.measure_pace", lambda *_: quick)
    for freeze, most in ((True, 100), (False, 1000)):
        config = resolve("photos", method="maskcon", preset="cpu", overrides={"freeze": freeze}).config
        heard = Heard()
        choice = epochs_within(Budget(600.0, time.monotonic(), {}), Unprepared(config), heard)
        assert choice.settings["epochs"] == most
        tuned = f"the settings of a frozen backbone were tuned with {config.epochs}"
        assert (tuned in heard.choices[0]) == freeze


def test_the_pace_is_measured_without_touching_the_run(photos, machine, monkeypatch):
    """A real calibration: of the net, the data and the settings of the run itself."""
    monkeypatch.setattr(
        "maskcon.config.choices.LONGEST_RUN", 3
    )  # with more time than a busy machine can need
    given = {**TINY, "image_size": 16}
    del given["epochs"]
    heard = Heard()
    run = maskcon.fit(
        str(photos), budget=600.0, settings=given, machine=machine, out="measured", callback=heard
    )
    plain = maskcon.fit(
        str(photos),
        settings=given | run.config.model_dump(include={"epochs"}),
        machine=machine,
        out="plain",
    )
    assert 1 <= run.config.epochs <= 3
    assert run.result["seconds"] <= 600
    weights = [(folder / "encoder.safetensors").read_bytes() for folder in (run.folder, plain.folder)]
    assert weights[0] == weights[1]


def test_budget_and_epochs_or_several_processes_do_not_go_together(photos, machine, tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="not both"):
        decided(str(photos), machine, tmp_path / "run", budget=60.0, overrides={"epochs": 3})
    several = machine.model_copy(update={"devices": 2})
    with pytest.raises(UsageError, match="single process"):
        decided(str(photos), several, tmp_path / "run", budget=60.0)


@pytest.mark.parametrize(
    ("seconds", "views", "refused"),
    [
        (10.0, 100_000, "2h46m"),  # many budgets: at once
        (4.0, 100_000, None),  # nothing is known yet
        (29.0, 5_000, None),  # less than a tenth of the budget gone, and no more than twice the budget needed
        (31.0, 5_000, "8m41s"),
        (31.0, 1_000, None),  # fits
    ],
)
def test_embedding_that_cannot_end_in_time_is_stopped_early_and_a_near_miss_watched(
    seconds, views, refused, monkeypatch
):
    clock = iter([0.0, seconds])
    monkeypatch.setattr("maskcon.training.budget.time.monotonic", lambda: next(clock))

    class WentOnError(Exception):
        pass

    class Embedding(Unprepared):
        def prepare(self, callback: Callback, on_extract) -> None:
            on_extract(100, views, 10.0)
            raise WentOnError

    config = resolve("photos", method="maskcon", preset="cpu", overrides={}).config
    told = rf"--budget 5m is too short: embedding .* takes about {refused}"
    with pytest.raises(WentOnError) if refused is None else pytest.raises(UsageError, match=told):
        epochs_within(Budget(300.0, 0.0, {}), Embedding(config), Callback())


def test_a_budget_that_reading_has_used_up_is_refused_before_anything_is_measured(monkeypatch):
    monkeypatch.setattr("maskcon.training.budget.time.monotonic", lambda: 90.0)
    monkeypatch.setattr("maskcon.training.budget.measure_pace", None)
    config = resolve("photos", method="maskcon", preset="cpu", overrides={}).config
    with pytest.raises(UsageError, match=r"reading the images alone took 1m30s"):
        epochs_within(Budget(60.0, 0.0, {}), Unprepared(config), Callback())


def test_a_budget_counts_from_the_command_not_from_the_end_of_imports(photos, machine):
    with pytest.raises(UsageError, match=r"--budget 1m is too short: reading the images alone took 2m"):
        fitted(photos, machine, Heard(), budget=60.0, begun=time.monotonic() - 120)


def test_a_choice_is_recorded_with_its_reason():
    values = json.loads(choices_bytes((Choice("bank", "16 keys", "few", {"bank_size": 16}),), 60.0))
    assert values["budget_seconds"] == 60.0
    assert values["choices"] == [
        {"name": "bank", "shown": "16 keys", "reason": "few", "settings": {"bank_size": 16}}
    ]

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from maskcon._utils.errors import UsageError
from maskcon.config.resolution import resolve
from maskcon.config.settings import Machine
from maskcon.paper.plans import Trial, ground_for
from maskcon.paper.runs import PlannedRun, runs_for, unfinished
from maskcon.paper.timing import expected_seconds, makespan, measure
from maskcon.training.budget import Pace, run_seconds
from maskcon.training.callbacks import Callback
from maskcon.training.journal import Journal
from maskcon.training.setup import load_dataset, settle
from tests.miniature import TINY

PACE = Pace(start=3.0, key=0.001, contrast=0.01, classify=0.004, evaluation=2.0, end=1.0)
SMALL = {key: value for key, value in TINY.items() if key != "tau"} | {
    "epochs": 1,
    "train_limit": 64,
    "test_limit": 40,
    "eval_every_epochs": 0,
}


def config(method: str, **settings: object):
    return resolve("embedded", method=method, preset="cpu", overrides=settings).config


def test_a_run_costs_its_start_its_keys_its_steps_its_scorings_and_its_end():
    contrast = config("maskcon", epochs=4, bank_size=300, batch_size=50, eval_every_epochs=0)
    assert run_seconds(PACE, contrast, 1000) == pytest.approx(3 + 0.3 + 4 * 1000 * 0.01 + 2 + 1)
    assert run_seconds(PACE, contrast, 200) == pytest.approx(3 + 0.2 + 4 * 200 * 0.01 + 2 + 1)
    classify = config("supce", epochs=4, eval_every_epochs=0)
    assert run_seconds(PACE, classify, 1000) == pytest.approx(3 + 4 * 1000 * 0.004 + 2 + 1)


def test_scorings_between_count_and_a_stopped_run_counts_for_what_is_left():
    often = config("supce", epochs=10, eval_every_epochs=3)  # after 3, 6, 9 and at the end
    assert run_seconds(PACE, often, 1000) == pytest.approx(3 + 40 + 4 * 2 + 1)
    assert run_seconds(PACE, often, 1000, done=0.5) == pytest.approx(3 + 20 + 2.5 * 2 + 1)
    before = config("supce", epochs=10, eval_every_epochs=3, protocol="reference")  # ahead of the first, too
    assert run_seconds(PACE, before, 1000) == pytest.approx(3 + 40 + 5 * 2 + 1)


def test_jobs_fill_the_places_as_they_become_free():
    assert makespan([4, 3, 2, 1], 1) == 10
    assert makespan([4, 3, 2, 1], 2) == 5  # 4+1 beside 3+2
    assert makespan([1, 1, 5], 2) == 6
    assert makespan([2], 8) == 2


def test_the_expectation_covers_all_runs(tmp_path):
    runs = runs_for(
        [Trial("supce", seed=seed) for seed in range(4)],
        ground_for("embedded", changes={"train_limit": 100, "epochs": 1}),
        out=tmp_path,
    )
    images = {run.folder: 100 for run in runs.values()}
    one = run_seconds(PACE, next(iter(runs.values())).config, 100) + 0.25
    paces = {"embedded": PACE}
    assert expected_seconds(list(runs.values()), images, paces, at_once=2) == pytest.approx(2 * one)


def test_runs_on_two_data_sets_share_the_places_and_have_a_pace_each(tmp_path):
    slow = replace(PACE, classify=0.04)
    grounds = [ground_for("embedded", changes={"train_limit": 100, "epochs": 1})]
    grounds.append(replace(grounds[0], source="other"))
    runs = [PlannedRun(Trial("supce"), ground, tmp_path / ground.source) for ground in grounds]
    images = {run.folder: 100 for run in runs}
    paces = {"embedded": PACE, "other": slow}
    each = [run_seconds(pace, runs[0].config, 100) + 0.25 for pace in paces.values()]
    assert expected_seconds(runs, images, paces, at_once=2) == pytest.approx(max(each))
    assert expected_seconds(runs, images, paces, at_once=1) == pytest.approx(sum(each))


def test_a_killed_run_counts_from_its_checkpoint_not_from_its_journal(tmp_path):
    ground = ground_for("embedded", changes={"train_limit": 100, "epochs": 1})
    run = PlannedRun(Trial("supce"), ground, tmp_path / "run")

    def expected() -> float:
        return expected_seconds([run], {run.folder: 100}, {"embedded": PACE}, at_once=1)

    whole = expected()
    with Journal(run.folder / "journal.jsonl") as journal:
        journal.write("start", step=0, total_steps=10)
        journal.write("step", step=9)
    assert expected() == whole  # killed before the first checkpoint: all of it again
    (run.folder / "checkpoints" / "step-00000005").mkdir(parents=True)
    assert expected() == pytest.approx(whole - 0.5 * 100 * PACE.classify)


def test_this_machine_can_be_measured(tmp_path, monkeypatch):
    monkeypatch.setenv("MASKCON_DATA", str(tmp_path))
    ground = ground_for("embedded", changes=SMALL)
    run = PlannedRun(Trial("selfcon"), ground, tmp_path / "run")
    pace = measure(run, Machine(device="cpu", threads=1), at_once=1)
    assert 0.5 < pace.start < 120
    assert 0 < pace.contrast < 1
    assert 0 < pace.classify < 1
    assert pace.key >= 0
    assert 0 < pace.evaluation < 60
    assert 0 < pace.end < 60
    assert not (tmp_path / "run").exists()


def test_what_cannot_be_trained_is_said_by_the_measurement(tmp_path, monkeypatch):
    monkeypatch.setenv("MASKCON_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    ground = ground_for("embedded", changes={"backbone": "resnet18", "width": 64, "weights": "imagenet"})
    run = PlannedRun(Trial("selfcon"), ground, tmp_path / "run")
    with pytest.raises(UsageError, match="--download"):
        measure(run, Machine(device="cpu", threads=1), at_once=1)


def test_unfinished_counts_images_and_finds_each_folder_once(tmp_path):
    ground = ground_for("embedded")
    trials = [Trial("supcon"), Trial("grafit", 1.0), Trial("grafit", 1.0, evaluate_on="validation")]
    runs = runs_for(trials, ground, out=tmp_path)
    waiting, images = unfinished(runs.values(), Machine(device="cpu"))
    assert [run.trial.name for run in waiting] == ["grafit-w1-seed0", "grafit-w1-validation-seed0"]
    assert set(images.values()) == {3_000}  # both parts are larger than the limit
    large = runs_for(trials, ground_for("embedded", changes={"train_limit": None}), out=tmp_path)
    _, images = unfinished(large.values(), Machine(device="cpu"))
    assert list(images.values()) == [6_000, 4_800]


def test_a_folder_with_something_else_in_it_is_refused(tmp_path):
    runs = runs_for([Trial("supce")], ground_for("embedded"), out=tmp_path)
    folder: Path = next(iter(runs.values())).folder
    folder.mkdir(parents=True)
    (folder / "note.txt").write_text("mine")
    with pytest.raises(UsageError, match="not a run folder"):
        unfinished(runs.values(), Machine(device="cpu"))


def test_a_finished_run_on_other_data_is_refused_and_one_on_these_is_used(tmp_path):
    ground = ground_for("embedded")
    run = next(iter(runs_for([Trial("supce")], ground, out=tmp_path).values()))
    data = load_dataset("embedded", run.config, Machine(), Callback())
    run.folder.mkdir(parents=True)
    (run.folder / "config.yaml").write_text(settle(run.config, data).to_yaml())
    (run.folder / "encoder.safetensors").write_bytes(b"")
    (run.folder / "result.json").write_text(json.dumps({"recall": {"1": 0.5}, "data": data.fingerprint()}))
    assert unfinished([run], Machine(device="cpu"))[0] == []
    (run.folder / "result.json").write_text(json.dumps({"recall": {"1": 0.5}, "data": "another"}))
    with pytest.raises(UsageError, match="other data"):
        unfinished([run], Machine(device="cpu"))

"""Which runs of a plan are still to be trained, and how long they take."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from maskcon._utils.errors import UsageError
from maskcon.config.settings import Machine
from maskcon.paper.ground import ground_for
from maskcon.paper.plans import Trial
from maskcon.paper.runs import expected_seconds, runs_for, unfinished
from maskcon.training.callbacks import Callback
from maskcon.training.setup import load_dataset, settle
from tests.paper.test_table import finish

RESULT = {"recall": {"1": 0.5}, "raw_pixels": {"1": 0.1}, "method": "supce", "seconds": 1.0}


def test_the_expectation_follows_the_finished_runs(tmp_path):
    first, second, *waiting = runs_for(
        [Trial("supce", seed=seed) for seed in range(5)], ground_for("embedded"), out=tmp_path
    ).values()
    for run, seconds in ((first, 10), (second, 20)):
        finish(run, 0.5)
        result = json.loads((run.folder / "result.json").read_text())
        (run.folder / "result.json").write_text(json.dumps({**result, "seconds": seconds}))
    assert expected_seconds(waiting, [first, second], at_once=1) == 45
    assert expected_seconds(waiting, [first, second], at_once=2) == 30
    assert expected_seconds(waiting, [], at_once=1) is None


def test_unfinished_finds_each_folder_once(tmp_path):
    trials = [Trial("supcon"), Trial("grafit", 1.0), Trial("grafit", 1.0, evaluate_on="validation")]
    runs = runs_for(trials, ground_for("embedded"), out=tmp_path)
    waiting, finished = unfinished(runs.values(), Machine(device="cpu"))
    assert [run.trial.name for run in waiting] == ["grafit-w1-seed0", "grafit-w1-validation-seed0"]
    assert finished == []


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
    (run.folder / "result.json").write_text(json.dumps({**RESULT, "data": data.fingerprint()}))
    assert unfinished([run], Machine(device="cpu")) == ([], [run])
    (run.folder / "result.json").write_text(json.dumps({**RESULT, "data": "another"}))
    with pytest.raises(UsageError, match="other data"):
        unfinished([run], Machine(device="cpu"))

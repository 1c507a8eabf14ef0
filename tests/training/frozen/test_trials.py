"""Trials of a head on shared features."""

from __future__ import annotations

import numpy as np

from maskcon.training.callbacks import Callback
from maskcon.training.setup import load_dataset, settle
from maskcon.training.trials import FrozenTrials, shortened
from tests.miniature import miniature
from tests.training.frozen.runs import OFTEN, fit


def test_a_trial_on_all_images_scores_as_the_run_of_its_settings(tmp_path, weights):
    run = fit(tmp_path / "run", weights, seed=3)
    data = miniature()
    trials = FrozenTrials(run.config, data, OFTEN, Callback())
    trial = trials.run(run.config, np.arange(len(data.train)), data.train.coarse)
    assert round(trial.recall, 6) == run.result["recall"]["1"]


def test_scored_images_are_not_trained_on_and_are_scored_by_coarse_label(tmp_path, weights):
    run = fit(tmp_path / "run", weights)
    data = miniature()
    config = settle(run.config, load_dataset(data, run.config, OFTEN, Callback()))
    trials = FrozenTrials(config, data, OFTEN, Callback())
    rows, scored = np.arange(48), np.arange(48, 72)
    labels = data.train.coarse[rows]
    one = trials.run(config, rows, labels, scored)
    assert one.embeddings.shape[:2] == (24, trials.features.train.shape[1])
    unit = one.embeddings[:, trials.features.query_views]
    unit = unit / np.linalg.norm(unit, axis=1, keepdims=True)
    cosine = unit @ unit.T - 2 * np.eye(24)
    coarse = data.train.coarse[scored]
    assert abs(one.recall - (coarse[cosine.argmax(axis=1)] == coarse).mean()) < 1e-6
    again = trials.run(config, rows, labels, scored)
    assert np.array_equal(one.embeddings, again.embeddings)
    other = trials.run(config, rows, 1 - labels * np.arange(48) % 2, scored)
    assert not np.array_equal(one.embeddings, other.embeddings)  # the labels given are the labels used


def test_trials_of_many_images_are_short(tmp_path, weights):
    config = fit(tmp_path / "run", weights).config
    assert shortened(config, 72).epochs == config.epochs
    many = shortened(config.changed(epochs=30), 1600)  # 100 steps per epoch, 150 at most
    assert many.epochs == 1
    assert shortened(config, 40).bank_size == 20

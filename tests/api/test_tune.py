"""`maskcon.api.tune` on trials with a known best setting."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

from maskcon._utils.errors import DataError, UsageError
from maskcon.api.tune import TRIALS, tune
from maskcon.config.resolution import resolve
from maskcon.discovery.tuning import GRID, Setting
from maskcon.training.trials import Trial

BEST = Setting(0.5, 0.05)
CONFIG = resolve("photos", method="maskcon", preset="cpu", overrides={"freeze": True}).config


class Generated:
    """Trials whose scores are best at BEST."""

    def __init__(self, classes: int, data: str = "these") -> None:
        self.calls: list[tuple[Setting, int, int]] = []
        coarse = np.arange(100) % classes
        self.data = SimpleNamespace(
            name="generated", train=SimpleNamespace(coarse=coarse), fingerprint=lambda: data
        )
        self.features = SimpleNamespace(key="key")

    def run(self, config, rows, labels, scored):
        assert not set(rows.tolist()) & set(scored.tolist())
        assert len(rows) == len(labels)
        setting = Setting(config.w, config.tau)
        self.calls.append((setting, config.seed, len(np.unique(labels))))
        random = np.random.default_rng(config.seed)
        embeddings = random.standard_normal((len(scored), 3, 8))
        return Trial(0.8 - (setting != BEST) * (0.1 + 0.02 * GRID.index(setting)), embeddings)


def test_the_best_setting_is_found_by_merging_classes(tmp_path):
    trials = Generated(classes=6)
    tuned = tune(CONFIG, trials, tmp_path, 3)
    assert (tuned.chosen, tuned.is_close) == (BEST, False)
    assert {groups for _, _, groups in trials.calls} == {2, 3, 4}
    told = json.loads(json.dumps(tuned.as_json()))
    assert told["chosen"] == {"w": 0.5, "tau": 0.05}
    assert len(told["settings"]) == len(GRID)
    assert {"mean_rank", "scores", "rankme", "lidar"} < told["settings"][0].keys()


def test_finished_trials_are_kept_and_more_rounds_added(tmp_path):
    first = tune(CONFIG, Generated(classes=5), tmp_path, 2)
    with (tmp_path / TRIALS).open("r+b") as file:  # a kill in the last line
        file.truncate(file.seek(0, 2) - 30)
    trials = Generated(classes=5)
    assert np.array_equal(tune(CONFIG, trials, tmp_path, 2).ranking.scores, first.ranking.scores)
    assert len(trials.calls) == 1
    tune(CONFIG, trials, tmp_path, 3)
    assert len(trials.calls) == 1 + len(GRID)


def test_trials_of_other_data_and_fewer_than_three_classes_are_refused(tmp_path):
    tune(CONFIG, Generated(classes=3), tmp_path, 2)
    with pytest.raises(UsageError, match="other data or settings"):
        tune(CONFIG, Generated(classes=3, data="those"), tmp_path, 2)
    for classes, message in ((1, "has 1 coarse class; 3 are"), (2, "has 2 coarse classes; 3 are")):
        with pytest.raises(DataError, match=message):
            tune(CONFIG, Generated(classes=classes), tmp_path / "other", 2)

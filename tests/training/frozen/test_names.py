"""Known names on a frozen backbone: spread by its features before training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from maskcon.training import loop
from tests.training.frozen.runs import fit
from tests.training.named import DATA, write_names
from tests.training.runs import Stopping
from tests.training.runs import weights as encoder_bytes


def test_names_are_spread_and_every_output_has_its_class(tmp_path, weights, monkeypatch):
    seen = []
    real = loop.train_step

    def watched(learner, data, config, place, rows):
        seen.append(data)
        return real(learner, data, config, place, rows)

    monkeypatch.setattr(loop, "train_step", watched)
    named = list(range(20))
    fit(tmp_path / "run", weights, data=DATA, fine=write_names(tmp_path, named, junk=[30]))
    data = seen[-1]
    fine, coarse = DATA.train.fine, DATA.train.coarse
    assert fine is not None
    number = {int(fine[row]): int(data.names[row]) for row in named}
    assert sorted(number.values()) == [0, 1, 2, 3]
    assert data.names[30] < 0  # junk stays junk
    rest = np.delete(np.arange(len(fine)), 30)
    assert (data.names[rest] >= 0).all()
    assert all(data.names[row] == number[int(fine[row])] for row in named)
    of = data.coarse_of.tolist()
    assert of[4:] == [0, 1]
    assert [of[name] for name in data.names[rest].tolist()] == coarse[rest].tolist()


def test_without_their_weight_names_are_not_spread(tmp_path, weights, monkeypatch):
    seen = []
    real = loop.train_step
    monkeypatch.setattr(loop, "train_step", lambda *given: seen.append(given[1]) or real(*given))
    fit(tmp_path / "run", weights, data=DATA, fine=write_names(tmp_path, range(20)), fine_weight=0.0)
    assert (seen[-1].names >= 0).sum() == 20
    assert seen[-1].coarse_of is None


def test_without_their_weight_all_names_are_supcon_on_fine_labels(tmp_path, weights):
    assert DATA.train.fine is not None
    whole = {"w": 1.0, "relation_warmup_epochs": 0.0, "fine_weight": 0.0}
    every = write_names(tmp_path, range(len(DATA.train)))
    fit(tmp_path / "named", weights, data=DATA, fine=every, **whole)
    parts = {
        name: replace(part, coarse=part.fine) for name, part in (("train", DATA.train), ("test", DATA.test))
    }
    fine = replace(DATA, coarse_names=DATA.fine_names, coarse_of_fine=(0, 1, 2, 3), **parts)
    fit(tmp_path / "supcon", weights, data=fine, method="supcon", **whole)
    assert encoder_bytes(tmp_path / "named") == encoder_bytes(tmp_path / "supcon")


def test_a_stopped_run_with_spread_names_ends_as_if_never_stopped(tmp_path, weights):
    fine = write_names(tmp_path, range(20))
    fit(tmp_path / "whole", weights, data=DATA, fine=fine)
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path / "stopped", weights, data=DATA, fine=fine, callback=Stopping())
    fit(tmp_path / "stopped", weights, data=DATA, fine=fine)
    assert encoder_bytes(tmp_path / "stopped") == encoder_bytes(tmp_path / "whole")

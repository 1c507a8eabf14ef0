"""Runs with known names of finer kinds (`fine`)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

import maskcon
from maskcon._utils.errors import DataError, UsageError
from maskcon.api import score
from maskcon.training import loop
from maskcon.training.checkpoint import load_latest
from tests.training.named import DATA, write_names
from tests.training.runs import Stopping, Told, ends_as_if_never_stopped, fit, weights

EVERY = range(len(DATA.train))


def test_a_single_name_trains_to_the_same_bytes_as_none(tmp_path):
    """There is no pair of named images, so the mask is MaskCon's."""
    fit(tmp_path / "named", data=DATA, fine=write_names(tmp_path, [5]))
    fit(tmp_path / "plain", data=DATA)
    assert weights(tmp_path / "named") == weights(tmp_path / "plain")


@pytest.mark.parametrize("method", ["maskcon", "supcon", "grafit"])
def test_all_names_train_to_the_same_bytes_as_supcon_on_fine_labels(tmp_path, method):
    whole = {"w": 1.0, "relation_warmup_epochs": 0.0}
    fit(tmp_path / "named", data=DATA, method=method, fine=write_names(tmp_path, EVERY), **whole)
    parts = {
        name: replace(part, coarse=part.fine) for name, part in (("train", DATA.train), ("test", DATA.test))
    }
    fine = replace(DATA, coarse_names=DATA.fine_names, coarse_of_fine=(0, 1, 2, 3), **parts)
    fit(tmp_path / "supcon", data=fine, method="supcon", **whole)
    assert weights(tmp_path / "named") == weights(tmp_path / "supcon")


@pytest.mark.parametrize(
    "changes", [{}, {"relation_space": "hog"}, {"method": "teachcon", "coarse_weight": 1.0}]
)
def test_a_stopped_run_with_names_ends_as_if_never_stopped(tmp_path, changes):
    fine = write_names(tmp_path, range(0, 72, 3), junk=[1, 2])
    assert ends_as_if_never_stopped(tmp_path, data=DATA, fine=fine, **changes)
    fit(tmp_path / "plain", data=DATA, **changes)
    assert weights(tmp_path / "whole") != weights(tmp_path / "plain")


def test_a_run_tells_what_was_named_and_keeps_it(tmp_path):
    told = Told()
    fine = write_names(tmp_path, range(0, 72, 3), junk=[1, 2])
    run = maskcon.fit(
        DATA, method="maskcon", preset="cpu", fine=fine, out=tmp_path / "run", callback=told,
        epochs=1, settings={"backbone": "resnet6", "width": 8, "bank_size": 40, "batch_size": 16},
    )  # fmt: skip
    assert f"{fine}: 4 kinds named, in 24 training images; 2 junk images left out" in told.messages
    assert yaml.safe_load((run.folder / "config.yaml").read_text())["fine"] == fine
    assert (run.result["named_images"], run.result["named_kinds"]) == (24, 4)
    assert run.result["train_images"] == 70
    Path(fine).unlink()  # names teach; a finished run is scored without them
    assert score(run, data=DATA)["recall"]


def test_junk_is_never_trained_on_nor_in_the_bank(tmp_path, monkeypatch):
    junk = list(range(0, 72, 5))
    seen: set[int] = set()
    real = loop.train_step

    def watched(learner, data, config, place, rows):
        seen.update(rows.tolist())
        return real(learner, data, config, place, rows)

    monkeypatch.setattr(loop, "train_step", watched)
    run = fit(tmp_path / "run", data=DATA, fine=write_names(tmp_path, [1, 2, 3], junk=junk))
    assert seen == set(EVERY) - set(junk)
    checkpoint, _ = load_latest(run.folder / "checkpoints")
    assert not set(checkpoint.tensors["bank._index"].tolist()) & set(DATA.train.index[junk].tolist())


@pytest.mark.parametrize("finished", [False, True])
def test_changed_names_are_refused_with_the_way_out(tmp_path, finished):
    fine = write_names(tmp_path, range(0, 72, 3))
    if finished:
        fit(tmp_path / "run", data=DATA, fine=fine)
    else:
        with pytest.raises(KeyboardInterrupt):
            fit(tmp_path / "run", data=DATA, fine=fine, callback=Stopping())
    write_names(tmp_path, range(0, 72, 2))
    with pytest.raises(UsageError, match=r"the file of --fine has changed since.* choose another --out"):
        fit(tmp_path / "run", data=DATA, fine=fine)
    write_names(tmp_path, range(0, 72, 3))
    fit(tmp_path / "run", data=DATA, fine=fine)
    with pytest.raises(UsageError, match=r"fine: .*kinds.csv -> None"):
        fit(tmp_path / "run", data=DATA)


@pytest.mark.parametrize("method", ["selfcon", "supce", "coins", "supfine"])
def test_a_method_that_cannot_use_names_refuses_them(tmp_path, method):
    with pytest.raises(UsageError, match="choose a --method of: supcon, grafit, maskcon, teachcon"):
        fit(tmp_path / "run", data=DATA, method=method, fine=write_names(tmp_path, EVERY))
    assert not (tmp_path / "run").exists()


def test_a_names_file_that_is_missing_or_wrong_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(DataError, match=r"none\.csv cannot be read"):
        fit(tmp_path / "run", data=DATA, fine=str(tmp_path / "none.csv"))
    (tmp_path / "kinds.csv").write_text("path,kind\na.png,thin\n")
    with pytest.raises(DataError, match="line 1: the column 'coarse' is missing"):
        fit(tmp_path / "run", data=DATA, fine=str(tmp_path / "kinds.csv"))
    with pytest.raises(DataError, match="names no training image"):
        fit(tmp_path / "run", fine=write_names(tmp_path, EVERY))
    assert not (tmp_path / "run").exists()

"""Where neighbours are looked for: among projections, as in the paper, or among the features that are used later."""

from __future__ import annotations

import pytest
import torch

from maskcon import methods
from maskcon.observer import Announcer
from maskcon.reproduce.bound import bank_of_run
from tests.engine.runs import fit, weights
from tests.miniature import TINY

FEATURES = 16  # of the tiny encoder: resnet6 of width 8


@pytest.mark.parametrize(
    ("space", "length"), [("features", FEATURES), ("projection", TINY["projection_dim"])]
)
def test_relations_compare_unit_vectors_of_the_space_that_was_asked_for(tmp_path, monkeypatch, space, length):
    seen = []

    def watched(keys, bank_keys, *others, **more):
        seen.append((keys.clone(), bank_keys.clone()))
        return compare(keys, bank_keys, *others, **more)

    compare = methods.masked_relation
    monkeypatch.setattr(methods, "masked_relation", watched)
    run = fit(tmp_path / "run", relation_space=space)
    for keys, bank_keys in seen:
        assert keys.shape[1] == bank_keys.shape[1] == length
        for rows in (keys, bank_keys):
            torch.testing.assert_close(rows.norm(dim=1), torch.ones(len(rows)))
    assert bank_of_run(run).compared.shape[1] == length


def test_methods_that_compare_nothing_learn_the_same_in_both_spaces(tmp_path):
    for method in ("selfcon", "grafit"):
        for space in ("features", "projection"):
            fit(tmp_path / f"{method}-{space}", method=method, relation_space=space)
        assert weights(tmp_path / f"{method}-features") == weights(tmp_path / f"{method}-projection")


@pytest.mark.parametrize("method", ["maskcon", "nnclr", "ascl"])
def test_methods_that_compare_learn_otherwise(tmp_path, method):
    for space in ("features", "projection"):
        fit(tmp_path / space, method=method, relation_space=space, tau=0.1)
    assert weights(tmp_path / "features") != weights(tmp_path / "projection")


def test_a_run_that_was_stopped_goes_on_with_the_features_of_its_bank(tmp_path):
    class Stopping(Announcer):
        def on_evaluation(self, values) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path / "stopped", relation_space="features", announce=Stopping())
    fit(tmp_path / "stopped", relation_space="features")
    fit(tmp_path / "whole", relation_space="features")
    assert weights(tmp_path / "stopped") == weights(tmp_path / "whole")


def test_d_z_is_measured_where_relations_are_made(tmp_path):
    from maskcon.evaluate.bound import Recipe, SampleLabels, bank_distances
    from maskcon.report.journal import read_journal
    from tests.miniature import miniature

    train = miniature().train
    run = fit(tmp_path / "run", relation_space="features", track_bound=True)
    bank = bank_of_run(run)
    labels = SampleLabels(*(torch.from_numpy(part) for part in (train.index, train.coarse, train.fine)))
    recipe = {"run": Recipe(methods.method_named("maskcon"), run.config.w, run.config.tau)}
    wanted = bank_distances(recipe, bank.compared, bank.index, labels)["run"]
    (*_, last) = [e["d_z"] for e in read_journal(tmp_path / "run" / "journal.jsonl") if "d_z" in e]
    assert last["run"] == pytest.approx(wanted, abs=1e-5)
    assert last["run"] != pytest.approx(
        bank_distances(recipe, bank.keys, bank.index, labels)["run"], abs=1e-5
    )

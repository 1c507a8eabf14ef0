"""Where neighbours are looked for: among projections, as in the paper, features that are used later, or HOG."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import combinations

import pytest
import torch

from maskcon.api import Run
from maskcon.methods import registry
from maskcon.models.hog import AXES, Axes
from maskcon.paper.relations import bank_of_run
from maskcon.training.callbacks import Callback
from tests.miniature import TINY, miniature
from tests.training.runs import fit, weights

SPACES = ("projection", "features", "hog")
FEATURES = 16  # of the tiny encoder: resnet6 of width 8


@pytest.mark.parametrize(
    ("space", "length"), [("features", FEATURES), ("projection", TINY["projection_dim"]), ("hog", AXES)]
)
def test_relations_compare_unit_vectors_of_the_space_that_was_asked_for(tmp_path, monkeypatch, space, length):
    seen = []

    def watched(keys, bank_keys, *others, **more):
        seen.append((keys.clone(), bank_keys.clone()))
        return compare(keys, bank_keys, *others, **more)

    compare = registry.masked_relation
    monkeypatch.setattr(registry, "masked_relation", watched)
    run = fit(tmp_path / "run", relation_space=space)
    for keys, bank_keys in seen:
        assert keys.shape[1] == bank_keys.shape[1] == length
        for rows in (keys, bank_keys):
            torch.testing.assert_close(rows.norm(dim=1), torch.ones(len(rows)), atol=2e-3, rtol=0)
    assert bank_of_run(run).compared.shape[1] == length


@pytest.mark.parametrize(("method", "asked"), [("maskcon", "masked_relation"), ("nnclr", "nearest_relation")])
def test_by_hog_relations_go_by_lists_of_the_class_or_of_all_where_labels_are_not_seen(
    tmp_path, monkeypatch, method, asked
):
    seen = []

    def watched(*given, similarity, index, bank_index, **more):
        seen.append((similarity, index, bank_index.clone()))  # clone: the bank is written in place
        return compare(*given, similarity=similarity, index=index, bank_index=bank_index, **more)

    compare = getattr(registry, asked)
    monkeypatch.setattr(registry, asked, watched)
    fit(tmp_path / "learnt", method=method)
    assert all(similarity is None for similarity, *_ in seen)
    seen.clear()
    fit(tmp_path / "run", method=method, relation_space="hog")
    train = miniature().train
    coarse = dict(zip(train.index.tolist(), train.coarse.tolist(), strict=True))
    across = 0
    for similarity, index, bank_index in seen:
        rows, columns = ([coarse[number] for number in some.tolist()] for some in (index, bank_index))
        same = torch.tensor(rows).unsqueeze(1) == torch.tensor(columns).unsqueeze(0)
        listed = similarity > -torch.inf
        assert listed[same].any()
        across += int(listed[~same].sum())
        own = index.unsqueeze(1) == bank_index.unsqueeze(0)
        assert (similarity[own] > 0.99).all()
    assert (across > 0) == (method == "nnclr")


def test_methods_that_compare_nothing_learn_the_same_by_projections_and_features(tmp_path):
    for method in ("selfcon", "grafit"):
        for space in ("projection", "features"):
            fit(tmp_path / f"{method}-{space}", method=method, relation_space=space)
        first, other = (weights(tmp_path / f"{method}-{space}") for space in ("projection", "features"))
        assert first == other


def test_a_method_without_keys_looks_for_no_neighbours(tmp_path):
    fit(tmp_path / "run", method="supce", relation_space="hog")


@pytest.mark.parametrize("method", ["maskcon", "nnclr", "ascl"])
def test_methods_that_compare_learn_otherwise(tmp_path, method):
    for space in SPACES:
        fit(tmp_path / space, method=method, relation_space=space, tau=0.1)
    learnt = [weights(tmp_path / space) for space in SPACES]
    assert all(one != other for one, other in combinations(learnt, 2))


class Stopping(Callback):
    def on_evaluation(self, values) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize("space", ["features", "hog"])
def test_a_run_that_was_stopped_goes_on_with_what_its_bank_compares(tmp_path, space):
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path / "stopped", relation_space=space, callback=Stopping())
    fit(tmp_path / "stopped", relation_space=space)
    fit(tmp_path / "whole", relation_space=space)
    assert weights(tmp_path / "stopped") == weights(tmp_path / "whole")


def test_a_bank_filled_where_the_axes_point_otherwise_compares_by_those_of_here(tmp_path):
    plain = Axes.of

    def turned(histograms):
        axes = plain(histograms)
        return replace(axes, matrix=-axes.matrix)

    with pytest.MonkeyPatch.context() as elsewhere:
        elsewhere.setattr(Axes, "of", turned)
        with pytest.raises(KeyboardInterrupt):
            fit(tmp_path / "stopped", relation_space="hog", callback=Stopping())
    fit(tmp_path / "stopped", relation_space="hog")
    fit(tmp_path / "whole", relation_space="hog")
    assert weights(tmp_path / "stopped") == weights(tmp_path / "whole")


def test_the_price_of_hog_features_counts_as_training(tmp_path, monkeypatch):
    from maskcon.training import setup

    def dear(*given, **named):
        time.sleep(1.5)
        return plain(*given, **named)

    plain = setup.hog_neighbours
    fit(tmp_path / "run", relation_space="hog", epochs=1)
    monkeypatch.setattr(setup, "hog_neighbours", dear)
    fit(tmp_path / "dear", relation_space="hog", epochs=1)
    cheap, costly = (Run.open(tmp_path / name).result["seconds"] for name in ("run", "dear"))
    assert costly > cheap + 0.7

from __future__ import annotations

import json
from pathlib import Path

import pytest

from maskcon._utils.errors import UsageError
from maskcon.config.resolution import resolve
from maskcon.config.settings import RunConfig
from maskcon.methods.registry import all_methods
from tests.benchmarks.test_method_table import refused

SMALL = {
    "train_limit": 40,
    "test_limit": 20,
    "batch_size": 16,
    "bank_size": 32,
    "width": 8,
    "image_size": 16,
    "backbone": "resnet6",
    "warmup_epochs": 0,
}


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import time_to_recall

    return time_to_recall


def small_study(script, epochs, methods=None, muon_rates=None):
    return script.Study("embedded", epochs, methods or {}, muon_rates or {}, everywhere=SMALL)


def resolved(recipe, **more) -> RunConfig:
    values = {key: None if value == "none" else value for key, value in {**recipe.settings, **more}.items()}
    return resolve("embedded", method=recipe.method, preset=recipe.preset, overrides=values).config


@pytest.mark.parametrize("study", ["embedded", "cifartoy-good"])
def test_all_recipes_train_the_same_net_for_a_stated_number_of_epochs(script, study):
    found = script.STUDIES[study].recipes()
    nets = {
        name: (config.backbone, config.width, config.stem, config.weights)
        for name, config in ((name, resolved(recipe)) for name, recipe in found.items())
    }
    assert set(nets.values()) == {("resnet10", 16, "fast", None)}
    by_muon = {f"{method} by muon" for method in script.STUDIES[study].methods}
    assert set(found) == {*script.STUDIES[study].epochs, *by_muon}
    assert all(resolved(found[name]).optimizer == "muon" for name in ("fast", *by_muon))
    assert all("epochs" in recipe.settings for recipe in found.values())


def test_every_method_of_the_paper_that_sees_coarse_labels_is_compared(script):
    seeing = {method.name for method in all_methods() if method.labels == "coarse"}
    for name in ("embedded", "cifartoy-good"):
        assert set(script.STUDIES[name].methods) == seeing - {"teachcon", "bucsfr"}


def test_a_study_without_recipes_only_ablates(tmp_path):
    line = refused("cifar100", "all", cwd=tmp_path, script="time_to_recall.py")
    assert "only the stage ablate" in line


@pytest.mark.parametrize("study", ["cifar100", "photographs"])
def test_other_studies_change_the_same_parts_of_the_same_net(script, study):
    found = script.STUDIES[study]
    for change in script.ABLATIONS.values():
        config = resolved(found.changed(change))
        assert (config.backbone, config.width, config.weights) == ("resnet10", 16, None)
        assert config.epochs <= found.epochs["fast"]


def test_each_change_of_fast_is_one_that_can_be_trained(script):
    study = script.STUDIES["embedded"]
    configs = {name: resolved(study.changed(change)) for name, change in script.ABLATIONS.items()}
    assert configs["unchanged"] == resolved(study.fast)
    assert len({config.to_yaml() for config in configs.values()}) == len(script.ABLATIONS)
    with_a_key_net = [config for config in configs.values() if not config.uses_hog]
    assert len(with_a_key_net) == 1
    assert all(config.epochs < study.epochs["fast"] for config in with_a_key_net)


def test_time_to_a_recall_is_that_of_the_first_score_at_or_above_it(script):
    points = [(1.0, 0.3), (2.0, 0.5), (3.0, 0.4), (4.0, 0.6)]
    assert script.seconds_to(points, 0.5) == 2.0
    assert script.seconds_to(points, 0.55) == 4.0
    assert script.seconds_to(points, 0.7) is None


def test_recipes_are_trained_and_their_times_told(script, tmp_path, capsys):
    recipes = small_study(script, {"fast": 2, "reference": 1}).recipes()
    script.train(script.Bench("embedded", tmp_path, 2), recipes, seeds=1, title="embedded")
    found = json.loads((tmp_path / "train.json").read_text())
    assert [len(found[name]["curves"][0]) for name in ("fast", "reference")] == [
        2,
        2,
    ]  # reference: before and after
    assert found["reference"]["seconds_to_reference"][0] <= found["reference"]["cpu_seconds"][0] + 0.1
    assert (tmp_path / "curves.png").stat().st_size > 5000
    assert "CPU s to reference's" in capsys.readouterr().out


def test_recipes_without_reference_or_misspelt_are_refused(script):
    study = script.STUDIES["embedded"]
    assert list(study.chosen("all"))[:2] == ["fast", "reference"]
    with pytest.raises(UsageError, match="needs reference"):
        study.chosen("fast,coins")
    with pytest.raises(UsageError, match="coins"):
        study.chosen("reference,coin")


def test_cifartoy_without_images_says_where_they_come_from(script, tmp_path):
    with pytest.raises(UsageError, match="--images"):
        script.STUDIES["cifartoy-good"].prepare(None, tmp_path)


@pytest.mark.slow
def test_changes_of_fast_are_scored_on_validation_images(script, tmp_path, capsys):
    changes = {"unchanged": {}, "no relation": {"w": 0.0}}
    script.ablate(script.Bench("embedded", tmp_path, 2), small_study(script, {"fast": 1}), changes, seeds=1)
    found = json.loads((tmp_path / "ablate.json").read_text())
    assert set(found) == set(changes)
    assert json.loads((tmp_path / "ablate" / "unchanged-seed0" / "result.json").read_text())[
        "evaluated_on"
    ] == ("validation")
    assert "| no relation |" in capsys.readouterr().out

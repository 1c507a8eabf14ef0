"""The trials around `fast` train what they say: each part changes the run, and only as it should."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from maskcon.config.resolution import resolve
from maskcon.config.settings import parse_value
from maskcon.models import hog
from maskcon.training import learner, loop, setup, step
from maskcon.training.journal import read_journal
from tests.training.runs import fit, weights


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import recipe_trials

    for place, names in (
        (loop, ("train_step", "learning_rate")),
        (step, ("make_views",)),
        (learner, ("build_optimizer",)),
        (setup.Assembly, ("training_data", "_looks")),
        (hog, ("SHIFTS", "CELL", "BINS", "nearest_in")),
    ):
        for name in names:  # put back after the test, whatever a part puts there
            monkeypatch.setattr(place, name, getattr(place, name))
    return recipe_trials


def steps(folder) -> list[dict]:
    return [event for event in read_journal(folder / "journal.jsonl") if event["kind"] == "step"]


def trained(folder):
    return fit(folder, coarse_weight=1.0, optimizer="muon", epochs=2).folder


PARTS = {
    "growing": "8@0.5",
    "key_size": "8",
    "calm_end": "0.5",
    "falling_w": "0.2",
    "crops": "2x8",
    "twins": "weak",
    "averaged": "0.5",
    "floor": "0.5",
    "whitened": "all",
    "adamw": "0.05",
    "early_labels": "2:0",
    "own_class": "yes",
    "clusters": "2/3",
    "guided": "10:0",
    "by_fine_labels": "5",
    "stored": "0.5",
}
OF_OUTLINES = {
    "still": "yes",
    "upright": "yes",
    "coarser": "yes",
    "one_sided": "yes",
    "fine_neighbours": "yes",
}


def test_all_parts_are_tested(script):
    assert {*PARTS, *OF_OUTLINES} == set(script.PARTS)


@pytest.mark.parametrize(("part", "value"), OF_OUTLINES.items())
def test_each_part_of_outlines_trains_another_encoder_by_them(script, part, value, tmp_path):
    plain = weights(fit(tmp_path / "plain", relation_space="hog").folder)
    script.PARTS[part](value)
    assert weights(fit(tmp_path / "changed", relation_space="hog").folder) != plain


def test_fine_neighbours_are_alike_and_others_are_not(script, tmp_path):
    import recipe_relations

    seen = []
    plain = recipe_relations.ASSEMBLY.training_data
    recipe_relations.fine_neighbours("yes")
    with_parts = recipe_relations.ASSEMBLY.training_data

    def training_data(self, *given):
        seen.append((plain(self, *given), with_parts(self, *given), self.data.train.fine))
        return seen[-1][1]

    recipe_relations.ASSEMBLY.training_data = training_data
    fit(tmp_path / "run", relation_space="hog")
    before, data, fine = seen[0]
    every = torch.arange(len(fine))
    alike = data.outlines.neighbours.among(every, every).table()
    assert torch.equal(alike == 1, torch.as_tensor(fine[:, None] == fine[None, :]))
    assert torch.equal(alike == -torch.inf, alike != 1)
    assert torch.equal(data.labels, before.labels)  # the mask is still that of the coarse labels


@pytest.mark.parametrize(("part", "value"), [*PARTS.items(), ("crops", "2x8+1")])
def test_each_part_trains_another_encoder(script, part, value, tmp_path):
    plain = weights(trained(tmp_path / "plain"))
    script.PARTS[part](value)
    changed = trained(tmp_path / "changed")
    assert weights(changed) != plain
    assert all(event["loss"] > 0 for event in steps(changed))


def test_crops_of_the_whole_size_are_a_step_as_it_is_but_for_their_draws(script, tmp_path, monkeypatch):
    """With one crop of the whole size, and the draws of a plain step, nothing else differs."""
    plain = trained(tmp_path / "plain")
    import recipe_parts

    real = recipe_parts.uniforms
    monkeypatch.setattr(
        recipe_parts,
        "uniforms",
        lambda rows, draws, seed, purpose, *place: real(rows, draws, seed, "query", *place),
    )
    script.PARTS["crops"]("1x16")
    crops = trained(tmp_path / "crops")
    found, expected = ([event["loss"] for event in steps(folder)] for folder in (crops, plain))
    assert found == pytest.approx(expected, rel=1e-4)


def test_growing_views_are_small_first_and_whole_at_the_end(script, monkeypatch, tmp_path):
    seen = []
    plain = step.make_views

    def watched(data, config, place, *rest):
        if place.epoch >= 0:
            seen.append((place.epoch, data.image_size))
        return plain(data, config, place, *rest)

    monkeypatch.setattr(step, "make_views", watched)
    script.PARTS["growing"]("8@0.5")
    trained(tmp_path / "run")
    assert set(seen) == {(0, 8), (1, 16)}


def test_averaged_weights_are_the_mean_of_those_after_each_step(script, monkeypatch, tmp_path):
    passed: list[torch.Tensor] = []
    plain = loop.train_step
    last: list[torch.Tensor] = []

    def watched(learning, *rest):
        report = plain(learning, *rest)
        passed.append(learning.model.backbone.conv1.weight.detach().clone())
        return report

    monkeypatch.setattr(loop, "train_step", watched)
    script.PARTS["averaged"]("0.5")
    averaging = loop.train_step

    def after(learning, *rest):
        report = averaging(learning, *rest)
        last[:] = [learning.model.backbone.conv1.weight.detach().clone()]
        return report

    monkeypatch.setattr(loop, "train_step", after)
    trained(tmp_path / "run")
    half = passed[len(passed) // 2 :]
    torch.testing.assert_close(last[0], torch.stack(half).mean(0))


def test_every_trial_is_a_setting_that_can_be_trained_and_no_two_are_alike(script):
    seen = set()
    for name, trial in script.TRIALS.items():
        job = trial.recipe(epochs=10).job(name, Path("run"), "embedded", 0)
        words = list(job.arguments)
        pairs = [words[at + 1].split("=", 1) for at, word in enumerate(words) if word == "--set"]
        values = {key: parse_value(value) for key, value in pairs}
        config = resolve("embedded", method="maskcon", preset="fast", overrides=values).config
        assert config.evaluate_on == "validation"
        seen.add((config, job.program))
    assert len(seen) == len(script.TRIALS)

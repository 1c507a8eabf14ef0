"""Where keys come from: the key encoder, or means of an image's queries, which need it in the first epoch alone."""

from __future__ import annotations

import pytest
import torch

from maskcon.training import loop, step
from tests.miniature import miniature
from tests.training.runs import ends_as_if_never_stopped, fit

MEANS = {"relation_space": "hog", "epochs": 3}


def watched(monkeypatch) -> list[tuple[int, bool]]:
    """Of every step, its epoch and whether keys were encoded."""
    seen: list[tuple[int, bool]] = []
    plain_step, plain_keys = loop.train_step, step.encode_keys
    encoded = False

    def encode_keys(*given):
        nonlocal encoded
        encoded = True
        return plain_keys(*given)

    def train_step(learner, data, config, place, rows):
        nonlocal encoded
        encoded = False
        report = plain_step(learner, data, config, place, rows)
        seen.append((place.epoch, encoded))
        return report

    monkeypatch.setattr(step, "encode_keys", encode_keys)
    monkeypatch.setattr(loop, "train_step", train_step)
    return seen


def test_with_means_keys_are_encoded_in_the_first_epoch_alone(tmp_path, monkeypatch):
    seen = watched(monkeypatch)
    fit(tmp_path / "run", **MEANS)
    assert {epoch for epoch, _ in seen} == {0, 1, 2}
    assert all(encoded == (epoch == 0) for epoch, encoded in seen)


def test_with_the_encoder_they_are_encoded_in_every_step(tmp_path, monkeypatch):
    seen = watched(monkeypatch)
    fit(tmp_path / "run", **MEANS | {"relation_space": "projection"})
    assert all(encoded for _, encoded in seen)


def test_a_step_contrasts_with_the_mean_and_the_bank_takes_in_the_new_one(tmp_path, monkeypatch):
    """Beside a slow count of what every step was given."""
    plain_loss, plain_step = step.relation_loss, loop.train_step
    slow: dict[int, torch.Tensor] = {}
    keys_of_step: list[torch.Tensor] = []
    queries_of_step: list[torch.Tensor] = []
    compared = 0

    def loss(queries, keys, *others, **more):
        queries_of_step.append(queries.detach().clone())
        keys_of_step.append(keys.clone())
        return plain_loss(queries, keys, *others, **more)

    def train_step(learner, data, config, place, rows):
        nonlocal compared
        report = plain_step(learner, data, config, place, rows)
        keys, queries = keys_of_step.pop(), queries_of_step.pop()
        for number, row in enumerate(rows.tolist()):
            if place.epoch == 0:
                slow[row] = keys[number]
                continue
            torch.testing.assert_close(keys[number], slow[row], atol=1e-5, rtol=0)
            mixed = 0.5 * slow[row] + 0.5 * queries[number]
            slow[row] = mixed / mixed.norm()
            held = learner.bank.keys[learner.bank.index == data.index[row]]
            assert (held - slow[row]).abs().amax(dim=1).min() < 1e-5
            compared += 1
        return report

    monkeypatch.setattr(step, "relation_loss", loss)
    monkeypatch.setattr(loop, "train_step", train_step)
    fit(tmp_path / "run", **MEANS)
    assert compared >= 2 * len(miniature().train)


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_run_that_was_stopped_goes_on_with_its_means(tmp_path, epochs):
    settings = MEANS | {"epochs": 4, "eval_every_epochs": epochs}
    assert ends_as_if_never_stopped(tmp_path, **settings)


def test_images_that_the_first_epoch_left_out_are_their_own_keys_at_first(tmp_path):
    count = len(miniature().train)
    fit(tmp_path / "run", **MEANS, protocol="reference", batch_size=count // 2 + 1)


@pytest.mark.parametrize("method", ["selfcon", "nnclr", "grafit", "coins", "supce"])
def test_every_method_takes_means(tmp_path, method):
    fit(tmp_path / "run", method=method, relation_space="hog", epochs=2)

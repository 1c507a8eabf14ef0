"""The learning rate and w rise over some epochs, or over a share of the run: whichever is longer."""

from __future__ import annotations

import pytest

from maskcon.config.presets import METHOD_SETTINGS
from maskcon.config.resolution import resolve
from maskcon.training.journal import read_journal
from tests.training.runs import fit


def journaled(folder, name: str) -> list[float]:
    return [event[name] for event in read_journal(folder / "journal.jsonl") if event["kind"] == "step"]


@pytest.mark.parametrize(
    ("epochs", "share", "rising"),
    [(0.0, 0.5, 10), (1.0, 0.5, 10), (3.0, 0.5, 15), (2.0, 0.0, 10), (0.0, 0.0, 0)],
)
def test_the_longer_of_the_two_rises_counts(tmp_path, epochs, share, rising):
    changes = {
        "warmup_epochs": epochs,
        "warmup_share": share,
        "relation_warmup_epochs": epochs,
        "relation_warmup_share": share,
    }
    run = fit(
        tmp_path / "run", epochs=4, schedule="constant", learning_rate=0.01, **changes
    )  # 5 steps an epoch
    full = [0.01] * (20 - rising)
    assert journaled(run.folder, "learning_rate") == pytest.approx(
        [0.01 * step / rising for step in range(rising)] + full
    )
    assert journaled(run.folder, "w") == pytest.approx(
        [step / rising for step in range(rising)] + [1.0] * (20 - rising)
    )


@pytest.mark.parametrize("rise", ["warmup", "relation_warmup"])
def test_who_gives_epochs_means_those_and_not_the_preset_s_share(rise, monkeypatch):
    def settled(**given):
        return resolve("embedded", method="maskcon", preset="fast", overrides=given).config

    share, epochs = f"{rise}_share", f"{rise}_epochs"
    monkeypatch.setitem(METHOD_SETTINGS["fast"]["maskcon"], share, 0.5)
    assert getattr(settled(), share) == 0.5
    assert getattr(settled(**{epochs: 2.0}), share) == 0
    assert getattr(settled(**{epochs: 2.0, share: 0.25}), share) == 0.25
    reasons = resolve("embedded", method="maskcon", preset="fast", overrides={epochs: 2.0}).reasons
    assert reasons[share] == f"{epochs} was given"


def test_a_frozen_head_rises_as_it_was_tuned():
    frozen = resolve("embedded", method="maskcon", preset="fast", overrides={"freeze": True}).config
    assert frozen.warmup_share == frozen.relation_warmup_share == 0

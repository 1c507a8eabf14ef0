"""The learning rate and w rise from 0 over some epochs."""

from __future__ import annotations

import pytest

from maskcon.training.journal import read_journal
from tests.training.runs import fit


def journaled(folder, name: str) -> list[float]:
    return [event[name] for event in read_journal(folder / "journal.jsonl") if event["kind"] == "step"]


@pytest.mark.parametrize(("epochs", "rising"), [(2.0, 10), (0.5, 2), (0.0, 0)])
def test_rate_and_w_rise_over_their_epochs(tmp_path, epochs, rising):
    changes = {"warmup_epochs": epochs, "relation_warmup_epochs": epochs}
    run = fit(tmp_path / "run", epochs=4, learning_rate=0.01, **changes)  # 5 steps per epoch
    assert journaled(run.folder, "learning_rate")[: rising + 1] == pytest.approx(
        [0.01 * step / rising for step in range(rising)] + [0.01]
    )
    assert journaled(run.folder, "w") == pytest.approx(
        [step / rising for step in range(rising)] + [1.0] * (20 - rising)
    )

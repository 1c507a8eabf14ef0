"""How long a run is expected to take, from the measured pace of its parts."""

from __future__ import annotations

import pytest

from maskcon.config.resolution import resolve
from maskcon.training.budget import Pace, run_seconds

PACE = Pace(start=3.0, key=0.001, contrast=0.01, classify=0.004, evaluation=2.0, end=1.0)


def config(method: str, **settings: object):
    return resolve("embedded", method=method, preset="cpu", overrides=settings).config


def test_a_run_costs_its_start_its_keys_its_steps_its_scorings_and_its_end():
    contrast = config("maskcon", epochs=4, bank_size=300, batch_size=50, eval_every_epochs=0)
    assert run_seconds(PACE, contrast, 1000) == pytest.approx(3 + 0.3 + 4 * 1000 * 0.01 + 2 + 1)
    assert run_seconds(PACE, contrast, 200) == pytest.approx(3 + 0.2 + 4 * 200 * 0.01 + 2 + 1)
    classify = config("supce", epochs=4, eval_every_epochs=0)
    assert run_seconds(PACE, classify, 1000) == pytest.approx(3 + 4 * 1000 * 0.004 + 2 + 1)


def test_scorings_between_count():
    often = config("supce", epochs=10, eval_every_epochs=3)  # after 3, 6, 9 and at the end
    assert run_seconds(PACE, often, 1000) == pytest.approx(3 + 40 + 4 * 2 + 1)
    before = config("supce", epochs=10, eval_every_epochs=3, protocol="reference")  # ahead of the first, too
    assert run_seconds(PACE, before, 1000) == pytest.approx(3 + 40 + 5 * 2 + 1)

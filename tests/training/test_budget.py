"""How long a run is expected to take, from the measured pace of its parts."""

from __future__ import annotations

import pytest

from maskcon.config.resolution import resolve
from maskcon.training.budget import END_SECONDS, Pace, run_seconds

PACE = Pace(key=0.001, step=0.01, evaluation=2.0)


def config(method: str, **settings: object):
    return resolve("embedded", method=method, preset="cpu", overrides=settings).config


def test_a_run_costs_its_keys_its_steps_its_evaluations_the_floor_and_its_end():
    contrast = config("maskcon", epochs=4, bank_size=300, batch_size=50, eval_every_epochs=0)
    assert run_seconds(PACE, contrast, 1000) == pytest.approx(0.3 + 4 * 1000 * 0.01 + 2 + 2 + END_SECONDS)
    assert run_seconds(PACE, contrast, 200) == pytest.approx(0.2 + 4 * 200 * 0.01 + 2 + 2 + END_SECONDS)
    without_bank = config("supce", epochs=4, eval_every_epochs=0)
    assert run_seconds(PACE, without_bank, 1000) == pytest.approx(4 * 1000 * 0.01 + 2 + 2 + END_SECONDS)


def test_evaluations_between_count():
    often = config("supce", epochs=10, eval_every_epochs=3)  # after 3, 6, 9 and at the end
    assert run_seconds(PACE, often, 1000) == pytest.approx(100 + 4 * 2 + 2 + END_SECONDS)
    before = config("supce", epochs=10, eval_every_epochs=3, protocol="reference")  # before the first, too
    assert run_seconds(PACE, before, 1000) == pytest.approx(100 + 5 * 2 + 2 + END_SECONDS)

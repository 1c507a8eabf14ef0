from __future__ import annotations

import pytest

from maskcon.training import loop


@pytest.fixture(autouse=True)
def every_step_in_the_journal(monkeypatch):
    monkeypatch.setattr(loop, "JOURNAL_EVERY_STEPS", 1)

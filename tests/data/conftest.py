from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def conversions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where converted batch files go in this test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "maskcon" / "converted"

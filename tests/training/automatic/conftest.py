from __future__ import annotations

from pathlib import Path

import pytest

from maskcon.config.settings import Machine
from tests.report.inspection.test_twins import scene


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return Machine(device="cpu", threads=1)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    for label, name in enumerate(("cat", "dog")):
        (folder / name).mkdir(parents=True)
        for number in range(20):
            scene(100 * label + number, (90, 70)).save(folder / name / f"{number}.jpg")
    return folder

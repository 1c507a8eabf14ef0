from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.searching import NAMES, picture
from tests.finished_run import finished_run


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return finished_run(tmp_path_factory.mktemp("runs") / "mini").folder


@pytest.fixture
def photos(tmp_path) -> Path:
    for number, name in enumerate(NAMES):
        picture(tmp_path / "photos" / name, number)
    return tmp_path / "photos"

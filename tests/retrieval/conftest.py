from __future__ import annotations

import pytest

from maskcon.api import Run
from tests.finished_run import finished_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return finished_run(tmp_path_factory.mktemp("runs") / "run")

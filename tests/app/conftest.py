from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.app.serving import Served, embeddings


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[Served]:
    pytest.importorskip("fastapi")
    running = Served(embeddings(tmp_path_factory.mktemp("explorer")))
    yield running
    running.process.kill()
    running.process.communicate()

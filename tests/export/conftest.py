from __future__ import annotations

from pathlib import Path

import pytest

from maskcon.api import Run
from maskcon.data import Dataset
from maskcon.export import export_run
from tests.export.pictures_for_export import photo_data
from tests.finished_run import finished_run


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Dataset, Run]:
    """Colour pictures of many sizes, whose run has a canvas and sizes."""
    folder = tmp_path_factory.mktemp("export")
    data = photo_data(folder / "photos")
    return folder, data, finished_run(folder / "run", data, source=str(folder / "photos"))


@pytest.fixture(scope="module")
def exported(photos: tuple[Path, Dataset, Run]) -> Path:
    folder, data, run = photos
    return export_run(run, folder / "plain", data=data).folder

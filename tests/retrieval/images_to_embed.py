"""Images to embed, and how close two embeddings of one image are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from maskcon.api import Run
from maskcon.api.embedding import write_embeddings as write
from maskcon.data.collection import Given
from maskcon.retrieval import store
from maskcon.retrieval.store import Refreshed
from tests.finished_run import write_photo


def photos(folder: Path, count: int = 10) -> Path:
    for number in range(count):
        write_photo(folder / ("cat" if number % 2 else "dog") / f"{number:02}.png", number, (20 + number, 14))
    return folder


def close_to(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def write_embeddings(
    run: Run, source: Given, out: str | Path, *, chunk_images: int | None = None, **options: object
) -> Refreshed:
    """As the command does; chunk_images: read so many at once, and save after each chunk."""
    with pytest.MonkeyPatch.context() as patch:
        if chunk_images is not None:
            patch.setattr(store, "CHUNK_IMAGES", chunk_images)
            patch.setattr(store, "STAGE_SECONDS", 0.0)
        return write(run, source, out, **options)[0]

"""Pictures to embed, and how close two embeddings of the same picture are."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.finished_run import write_photo


def photos(folder: Path, count: int = 10) -> Path:
    for number in range(count):
        write_photo(folder / ("cat" if number % 2 else "dog") / f"{number:02}.png", number, (20 + number, 14))
    return folder


def close_to(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)

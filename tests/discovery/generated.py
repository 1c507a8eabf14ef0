"""Embeddings of generated images: classes with known kinds, with none, and with nested ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from maskcon.discovery.kinds import Embedded

DIMENSION = 32


def clustered(
    sizes: Sequence[int], *, seed: int = 0, distance: float = 1.0, noise: float = 0.1, coarse: str = "apple"
) -> tuple[Embedded, np.ndarray]:
    """One class of kinds of these sizes around random centres; also the true kind of each image."""
    random = np.random.default_rng(seed)
    base = 3 * random.standard_normal(DIMENSION)
    centres = base + distance * random.standard_normal((len(sizes), DIMENSION))
    truth = np.repeat(np.arange(len(sizes)), sizes)
    vectors = centres[truth] + noise * random.standard_normal((len(truth), DIMENSION))
    paths = [f"{coarse}/{number:05}.jpg" for number in range(len(truth))]
    return Embedded(paths, [coarse] * len(truth), vectors.astype(np.float32)), truth


def cloud(count: int, *, seed: int = 0, decay: float = 0.0, coarse: str = "cloud") -> Embedded:
    """One class without kinds: a normal distribution; its deviations decay along the axes."""
    random = np.random.default_rng(seed)
    deviations = np.arange(1.0, DIMENSION + 1) ** -decay
    vectors = 20 * np.eye(DIMENSION)[0] + deviations * random.standard_normal((count, DIMENSION))
    paths = [f"{coarse}/{number:05}.jpg" for number in range(count)]
    return Embedded(paths, [coarse] * count, vectors.astype(np.float32))


def joined(*parts: Embedded) -> Embedded:
    """Several classes as one dataset."""
    return Embedded(
        [path for part in parts for path in part.paths],
        [coarse for part in parts for coarse in part.coarse],
        np.concatenate([part.vectors for part in parts]),
    )


def some(embedded: Embedded, rows: Sequence[int] | np.ndarray) -> Embedded:
    """These rows, in this order."""
    return Embedded(
        [embedded.paths[i] for i in rows], [embedded.coarse[i] for i in rows], embedded.vectors[rows]
    )

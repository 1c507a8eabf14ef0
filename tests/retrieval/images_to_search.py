"""Small images, an embedder that needs no training, and an index of them in a folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from maskcon.data.collection import gather
from maskcon.retrieval.embeddings import INDEX, EmbeddingsStore
from maskcon.retrieval.store import Header, Refreshed, refresh

ENCODER = "e" * 64
SIDE = 16


class Embedder:
    """Means of 4 x 4 blocks as an embedding, [n, 48]; counts what it was given."""

    def __init__(self, fail_after: int | None = None) -> None:
        self.count = 0
        self.fail_after = fail_after

    def __call__(self, images, sizes):
        if self.fail_after is not None and self.count >= self.fail_after:
            raise KeyboardInterrupt
        self.count += len(images)
        blocks = images.reshape(len(images), 3, 4, 4, 4, 4).mean(axis=(3, 5), dtype=np.float64)
        return (blocks.reshape(len(images), -1) - 100.0).astype(np.float32)


def draw(path: Path, seed: int) -> Path:
    """An image of its own for each seed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def photos(folder: Path, count: int = 6) -> Path:
    for number in range(count):
        draw(folder / f"kind {number % 2}" / f"{number}.png", number)
    return folder


def update(folder: Path, where: Path, embedder: Embedder | None = None, **options) -> Refreshed:
    """Bring the index of a folder up to date, as the command does."""
    pictures = gather(str(folder), canvas=SIDE, channels=3)
    where.mkdir(parents=True, exist_ok=True)
    store = EmbeddingsStore(where / INDEX, Header(ENCODER, pictures.source, pictures.root))
    return refresh(store, pictures, embedder or Embedder(), **options)

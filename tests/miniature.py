"""A data set and settings small enough to train in a second."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from maskcon.data import Dataset, ImageSet

FINE_OF_COARSE = 2
TINY: dict[str, Any] = {
    "backbone": "resnet6",
    "width": 8,
    "stem": "stride2",
    "epochs": 2,
    "batch_size": 16,
    "bank_size": 40,
    "projection_dim": 8,
    "warmup_epochs": 0.5,
    "relation_warmup_epochs": 0.5,
    "eval_every_epochs": 1,
    "learning_rate": 0.05,
    "weight_decay": 5e-4,
    "tau": 0.1,
}


def miniature(
    train: int = 72, test: int = 24, *, seed: int = 0, fine: bool = True, size: int = 16
) -> Dataset:
    """Stripes and checks of two widths each, with noise: two coarse kinds, four fine ones."""
    generator = np.random.default_rng(seed)

    def part(count: int, first: int) -> ImageSet:
        labels = np.arange(count, dtype=np.int64) % 4
        images = np.empty((count, 1, size, size), dtype=np.uint8)
        for row, label in enumerate(labels):
            period = 2 if label % FINE_OF_COARSE == 0 else 4
            across, down = (
                ((np.arange(size) + shift) // period) % 2 for shift in generator.integers(0, 8, 2)
            )
            stripes = across[None, :].repeat(size, 0)
            pattern = stripes if label < FINE_OF_COARSE else stripes ^ down[:, None]
            noise = generator.integers(
                0, 160, (size, size)
            )  # where a pattern starts and its noise hide its kind
            images[row, 0] = np.clip(pattern * 95 + noise, 0, 255)
        return ImageSet(
            images=images,
            coarse=labels // FINE_OF_COARSE,
            fine=labels if fine else None,
            index=np.arange(first, first + count, dtype=np.int64),
        )

    return Dataset(
        name="miniature",
        train=part(train, 0),
        test=part(test, 10_000),
        coarse_names=("stripes", "checks"),
        fine_names=("narrow stripes", "wide stripes", "narrow checks", "wide checks") if fine else None,
        family="embedded",
        coarse_of_fine=(0, 0, 1, 1) if fine else None,
    )


def with_paths(data: Dataset) -> Dataset:
    """Paths `train/0.png`, `train/1.png`, ... and `test/0.png`, ..."""
    parts = {
        part: replace(images, paths=tuple(f"{part}/{row}.png" for row in range(len(images))))
        for part, images in (("train", data.train), ("test", data.test))
    }
    return replace(data, **parts)

"""What the step rows train: the objects of a real run, one step ahead of training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from maskcon.config.resolution import resolve
from maskcon.config.settings import RunConfig
from maskcon.data import Dataset, ImageSet, load
from maskcon.training.callbacks import Callback
from maskcon.training.distributed import start
from maskcon.training.setup import assemble, settle
from maskcon.training.state import Learner
from maskcon.training.step import Place, StepReport, TrainingData, train_step

LEARNING_RATE = 1e-4  # small: repeated steps on one batch must stay in range


@dataclass
class Subject:
    """A run with a full bank, ready for a step."""

    config: RunConfig
    learner: Learner
    data: TrainingData
    rows: Tensor  # [B] of the batch that every step takes

    def step(self) -> StepReport:
        place = Place(epoch=0, step=0, w=self.config.w, learning_rate=LEARNING_RATE)
        return train_step(self.learner, self.data, self.config, place, self.rows)

    @property
    def images(self) -> Tensor:
        """uint8 ``[B, C, H, W]``."""
        images, _ = self.data.feed.take(self.rows)
        return images

    def ready_views(self) -> Tensor:
        """Random views in the encoder's memory format, for work measured without view making."""
        channels, size = self.images.shape[1], self.data.image_size
        views = torch.randn(len(self.rows), channels, size, size, generator=torch.Generator().manual_seed(1))
        return views.contiguous(memory_format=torch.channels_last)

    def with_views(self, query: Tensor, key: Tensor) -> Subject:
        """The same learner, given these views ``[B, C, S, S]`` instead of making its own."""
        data = replace(
            self.data, query_view=ReadyViews(query), key_view=ReadyViews(key), normalise=lambda views: views
        )
        return replace(self, data=data)

    def bare_passes(self, views: Tensor) -> Callable[[], None]:
        """Forward and backward of the query encoder and forward of the key encoder alone."""
        learner = self.learner
        pair = learner.pair
        assert pair is not None  # all subjects contrast

        def passes() -> None:
            learner.forget_gradients()
            learner.query(views).projection.sum().backward()
            pair.encode_keys(views)

        return passes


@dataclass(frozen=True)
class ReadyViews:
    """A view policy that returns given views."""

    views: Tensor
    draws: int = 0
    name: str = "ready"

    def __call__(self, images: Tensor, uniforms: Tensor, *, size: int, sizes: Tensor | None = None) -> Tensor:  # noqa: ARG002
        return self.views


def cifar_like(count: int = 10_000) -> Dataset:
    """Random images in the shape of CIFAR100: 3 x 32 x 32, 20 coarse classes of 5 fine ones."""
    generator = np.random.default_rng(0)
    fine = np.arange(count, dtype=np.int64) % 100
    part = ImageSet(
        images=generator.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8),
        coarse=fine // 5,
        fine=fine,
        index=np.arange(count, dtype=np.int64),
    )
    return Dataset(
        name="random images",
        train=part,
        test=part.subset(np.arange(100)),
        coarse_names=tuple(f"coarse {number}" for number in range(20)),
        fine_names=tuple(f"fine {number}" for number in range(100)),
        family="cifar",
        coarse_of_fine=tuple(number // 5 for number in range(100)),
    )


def resnet18(**changes: Any) -> Subject:
    """The paper's settings for CIFAR100: ResNet-18, 32 px, batch 128, bank 8192."""
    return subject(cifar_like(), "cifar100", "paper", **changes)


def cpu(**changes: Any) -> Subject:
    """The preset `cpu` on the embedded set."""
    return subject(load("embedded"), "embedded", "cpu", **changes)


def subject(data: Dataset, source: str, preset: str, *, devices: int = 1, **changes: Any) -> Subject:
    """MaskCon with a preset's settings, but for `changes`, on one thread per process."""
    config = settle(resolve(source, method="maskcon", preset=preset, overrides=changes).config, data)
    processes = start(device="cpu", devices=devices, precision=config.precision, threads=1)
    assembly = assemble(config, data, processes, download=False)
    learner, training = assembly.learner, assembly.prepare(Callback())
    _fill_bank(learner, training)
    return Subject(config, learner, training, torch.arange(config.batch_size))


def _fill_bank(learner: Learner, data: TrainingData) -> None:
    """Random unit keys: priming with real ones would take longer than the measurement."""
    bank = learner.bank
    assert bank is not None
    rows = torch.arange(bank.size) % len(data)
    keys = torch.randn(bank.size, bank.dim, generator=torch.Generator().manual_seed(0))
    bank.enqueue(torch.nn.functional.normalize(keys, dim=1), data.labels[rows], data.index[rows])

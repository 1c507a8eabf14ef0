"""Train in a temporary folder, for estimators that keep the encoder in memory."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import UsageError
from maskcon.config.choices import SMALLEST_VIEW, Facts, batch_choice, epoch_settings
from maskcon.config.resolution import resolve
from maskcon.config.settings import Machine, RunConfig
from maskcon.data import Dataset, ImageSet
from maskcon.models import Backbone
from maskcon.models.encoder_file import EncoderFacts, read_encoder
from maskcon.training.callbacks import Callback
from maskcon.training.distributed import threads_of_torch
from maskcon.training.journal import read_journal
from maskcon.training.run_folder import ENCODER, JOURNAL
from maskcon.training.runner import train
from maskcon.training.setup import settle
from maskcon.training.signals import Interrupted

# One run at a time: new weights are drawn from torch's random state, which the threads of a process share.
_ONE_RUN = threading.Lock()


@dataclass(frozen=True)
class Trained:
    """A trained query encoder on the CPU, its losses and warnings."""

    encoder: Backbone
    facts: EncoderFacts
    epoch_losses: list[float]  # mean over the logged steps of each epoch
    warnings: list[str]


def dataset_of(
    images: NDArray[np.uint8],
    sizes: NDArray[np.int32] | None,
    labels: NDArray[np.int64],
    names: tuple[str, ...],
    family: str,
    *,
    fine: bool,
) -> Dataset:
    """Make a dataset of training images, uint8 ``[N, C, H, W]``.

    fine: whether the labels ``[N]`` are fine labels.
    """
    part = ImageSet(images, labels, labels if fine else None, np.arange(len(images)), sizes)
    return Dataset(
        name="arrays",
        train=part,
        # not used: scikit-learn splits and scores itself
        test=part.subset([0, 1]),
        coarse_names=names,
        fine_names=names if fine else None,
        family=family,
        coarse_of_fine=tuple(range(len(names))) if fine else None,
    )


def fitted_config(
    data: Dataset, given: Mapping[str, Any], *, method: str, preset: str, seed: int
) -> RunConfig:
    """Complete the given settings from the preset, with sizes for few, small images."""
    usual: dict[str, Any] = {"eval_every_epochs": 0}
    if max(data.train.images.shape[2:]) < SMALLEST_VIEW and not given.get("freeze"):
        usual["image_size"] = SMALLEST_VIEW  # below, the encoder's halvings would leave nothing
    overrides = {**usual, **given, "seed": seed}
    config = resolve(data.name, method=method, preset=preset, overrides=overrides).config
    facts = Facts(train=len(data.train), side=config.image_size or 0)
    smaller = batch_choice(facts, given, usual=config.batch_size, learning_rate=config.learning_rate).settings
    if "batch_size" not in given and smaller["batch_size"] < config.batch_size:
        config = config.changed(**smaller)
    if "bank_size" not in given:  # at most half of the images: more keys would be stale
        config = config.changed(bank_size=max(config.batch_size, min(config.bank_size, len(data.train) // 2)))
    shorter = epoch_settings(config.epochs, {**usual, **given}, config)
    return settle(config.changed(**shorter), data)


def train_temporarily(
    config: RunConfig,
    data: Dataset,
    *,
    device: str,
    threads: int | None = None,
    download: bool = False,
    callback: Callback | None = None,
) -> Trained:
    """Train to the same weights as `maskcon.fit`, in a folder that is then deleted.

    Args:
        config: settled on the data, see `maskcon.training.setup.settle`.
        device: cpu, cuda or mps.
        threads: of torch, while it trains; None leaves them as they are.
        download: whether pretrained weights may be fetched.
        callback: receives progress; silent by default.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:  # each would train its own encoder
        raise UsageError(
            "an estimator trains in one process, and a launcher started several here; use maskcon.fit to share the work"
        )
    # no checkpoint before the last one, since the run cannot be resumed
    machine = Machine(device=device, checkpoint_every_seconds=1e9, download=download)
    with (
        _ONE_RUN,
        threads_of_torch(threads),
        tempfile.TemporaryDirectory(prefix="maskcon-") as parent,
        _interrupts_as_usual(),
    ):
        folder = Path(parent) / "run"
        # stretched, not cropped: all of a wide array is embedded, as in training
        train(config, data, folder, machine, callback or Callback(), test_resize="both")
        encoder, facts = read_encoder(folder / ENCODER)
        journal = read_journal(folder / JOURNAL)
    losses: dict[int, list[float]] = {}
    for event in journal:
        if event["kind"] == "step":
            losses.setdefault(event["epoch"], []).append(event["loss"])
    return Trained(
        encoder=encoder,
        facts=facts,
        epoch_losses=[float(np.mean(values)) for values in losses.values()],
        warnings=[event["message"] for event in journal if event["kind"] == "warning"],
    )


@contextmanager
def _interrupts_as_usual() -> Iterator[None]:
    """Raise KeyboardInterrupt or SystemExit for signals: there is no run to resume."""
    try:
        yield
    except Interrupted as stop:
        if stop.exit_code == 130:
            raise KeyboardInterrupt from None
        raise SystemExit(stop.exit_code) from None

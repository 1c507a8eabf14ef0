"""Trials: short runs of a head on shared features of a frozen backbone.

A trial takes seconds and leaves no files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from maskcon._utils.errors import UsageError
from maskcon.config.backbones import view_size
from maskcon.config.choices import epoch_settings
from maskcon.config.presets import DEFAULT_PRESET
from maskcon.config.settings import Machine, RunConfig
from maskcon.data import Dataset, ImageSet
from maskcon.data.photos import usual_side
from maskcon.methods.registry import method_named
from maskcon.models import FeatureHead
from maskcon.training.automatic import complete_settings
from maskcon.training.callbacks import Callback
from maskcon.training.distributed import start
from maskcon.training.evaluation import Evaluator
from maskcon.training.frozen.features import FrozenFeatures, require_weights
from maskcon.training.journal import Journal
from maskcon.training.loop import Training
from maskcon.training.schedule import steps_in_epoch
from maskcon.training.setup import assemble, load_dataset, plan_images, settle
from maskcon.training.state import build_learner

Labels = NDArray[np.int64]

NEVER = 1e9  # seconds between checkpoints: a trial is not resumed
MOST_STEPS = 150  # of a trial


@dataclass(frozen=True)
class Trial:
    """Result of a trial.

    recall: recall@1 of the scored images by their finest labels, 0..1
    embeddings: float32 [M, V, D], the scored images in each of their cached views
    """

    recall: float
    embeddings: NDArray[np.float32]


class FrozenTrials:
    """A dataset's features, embedded once or read from the cache, and trials on them.

    Args:
        config: settled on the data; it has freeze=yes.
        callback: receives the progress of the embedding.
    """

    def __init__(self, config: RunConfig, data: Dataset, machine: Machine, callback: Callback) -> None:
        self.data = data
        self.processes = start(
            device=machine.device, devices=1, precision=config.precision, threads=machine.threads
        )
        self._assembly = assemble(config, data, self.processes, download=machine.download)
        self._assembly.prepare(callback)
        assert self._assembly.features is not None  # a frozen run has them
        self.features: FrozenFeatures = self._assembly.features

    def run(self, config: RunConfig, rows: Labels, labels: Labels, scored: Labels | None = None) -> Trial:
        """Train a head on some training images, to the end of the config.

        Args:
            config: method, w, tau, seed and epochs of the trial.
            rows: training images [n] to learn from.
            labels: what the method sees of them, [n].
            scored: training images [M] to score on, by their coarse label; None: the test images, by their finest.
        """
        views = self.features.train[:0] if scored is None else self.features.train[scored]  # [M, V, D]
        features = replace(self.features, train=self.features.train[rows])
        part: ImageSet = self.data.test
        if scored is not None:
            part = replace(self.data.train.subset(scored), fine=None)
            plain = np.asarray(views[:, features.query_views], dtype=np.float32)
            features = replace(features, test=torch.from_numpy(plain).to(self.processes.device))
        size = features.train.shape[2]
        learner = build_learner(
            config,
            method_named(config.method),
            self.processes,
            labels=torch.from_numpy(labels),
            in_channels=part.images.shape[1],
            classes=int(labels.max()) + 1,
            backbone_of=partial(FeatureHead, size),
        )
        device = self.processes.device
        index = torch.arange(len(rows), device=device)
        training_data = features.training_data(torch.from_numpy(labels).to(device), index, config, device)
        evaluator = Evaluator(learner, part, self._assembly.facts, features)
        machine = Machine(checkpoint_every_seconds=NEVER)
        try:
            with TemporaryDirectory(prefix="maskcon-") as folder:
                training = Training(
                    learner,
                    training_data,
                    config.changed(eval_every_epochs=0),
                    machine,
                    Callback(),
                    Journal(None),
                    evaluator,
                    Path(folder),
                    identity={},
                    machine_facts={},
                )
                training.run()
        finally:
            evaluator.close()
            training_data.feed.close()
        flat = torch.from_numpy(np.asarray(views, dtype=np.float32)).to(device).flatten(0, 1)  # [M * V, D]
        embedded = replace(features, test=flat).embed_test(learner.model.backbone, torch.arange(len(flat)))
        recall = training.progress.evaluations[-1]["recall"]["1"]
        return Trial(recall, embedded.view(views.shape).cpu().numpy())


def open_trials(
    source: str,
    method: str,
    overrides: Mapping[str, Any],
    folder: Path,
    machine: Machine,
    callback: Callback,
    check: Callable[[Dataset], None] = lambda data: None,  # noqa: ARG005
) -> tuple[RunConfig, FrozenTrials]:
    """Complete settings as `maskcon train SOURCE --freeze` does; embed the images.

    Args:
        folder: of the trials; it holds no run.
        check: called with the data; may raise before the images are embedded.

    Raises:
        UsageError: the pretrained weights are missing, or the settings do not fit.
    """
    if overrides.get("thaw"):
        raise UsageError(
            f"thaw={overrides['thaw']} cannot be used here: trials train only heads; leave it out"
        )
    completed = complete_settings(
        source,
        method=method,
        preset=DEFAULT_PRESET,
        overrides={**overrides, "freeze": True},
        folder=folder,
        machine=machine,
        choose=True,
        callback=callback,
    )
    config, plan = completed.resolved.config, completed.plan
    require_weights(config, download=machine.download)
    plan = plan or plan_images(source, machine, callback.on_load, config.protocol)
    if config.image_size is None and plan is not None:
        config = config.changed(image_size=view_size(config.backbone, usual_side(plan) or 0.0))
    data = load_dataset(source, config, machine, callback, plan)
    check(data)
    config = settle(config, data)
    return config, FrozenTrials(config, data, machine, callback)


def shortened(config: RunConfig, images: int) -> RunConfig:
    """Return the settings of a trial on a number of images.

    At most MOST_STEPS steps, and half of the images in the bank.
    """
    steps = steps_in_epoch(images, config.batch_size)
    epochs = max(1, min(config.epochs, MOST_STEPS // steps))
    bank = max(config.batch_size, min(config.bank_size, images // 2))
    return config.changed(**epoch_settings(epochs, {}, config), bank_size=bank)

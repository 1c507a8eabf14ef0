"""The parts of a run put together: its learner, its backbone if that is frozen, and what its steps read."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskcon import transforms
from maskcon.config.settings import RunConfig
from maskcon.data import Dataset
from maskcon.methods.registry import Method, method_named
from maskcon.models import Backbone, FeatureHead
from maskcon.models.encoder_file import EncoderFacts
from maskcon.models.hog import TURN, Looks, Outlines, listed, outlines
from maskcon.training import frozen
from maskcon.training.distributed import Processes
from maskcon.training.feed import Feed
from maskcon.training.frozen import FrozenFeatures
from maskcon.training.learner import Learner, build_learner
from maskcon.training.preparation import encoder_facts
from maskcon.training.step import TrainingData

SILENT_SECONDS = 3.0  # loops compiled before are loaded sooner


@dataclass(frozen=True)
class Assembly:
    """A run before its first step; see `assemble`."""

    config: RunConfig
    data: Dataset
    processes: Processes
    facts: EncoderFacts
    labels: NDArray[np.int64]  # [N] what the method is told of the training images
    learner: Learner
    frozen_backbone: Backbone | None
    # the query's view, the key's, and what normalises both
    policies: tuple[transforms.Policy, transforms.Policy, Callable[[Tensor], Tensor]]

    def embedded(
        self, progress: Callable[[int, int, float], None], message: Callable[[str], None]
    ) -> FrozenFeatures | None:
        """The cached features of a frozen backbone, made now if they are not there; None if none is frozen."""
        if self.frozen_backbone is None:
            return None
        return frozen.prepare(
            self.config,
            self.frozen_backbone,
            self.data,
            self.facts,
            self.processes,
            progress=progress,
            message=message,
        )

    def training_data(
        self, features: FrozenFeatures | None, progress: Callable[[int, int], None]
    ) -> TrainingData:
        """What the steps read: images and their views, or the cached features of a frozen backbone.

        progress: told of the images whose outlines are found, where relations compare those.
        """
        device = self.processes.device
        labels = torch.from_numpy(self.labels).to(device)
        train = self.data.train
        index = torch.from_numpy(train.index).to(device)
        if features is not None:
            return features.training_data(labels, index, self.config, device)
        query_view, key_view, normalise = self.policies
        feed = Feed(train.images, train.sizes, device)
        seen: Outlines | None = None
        if self.config.relation_space == "hog" and self.learner.bank is not None:
            sees_classes = self.learner.method.labels != "none"
            seen = outlines(
                feed.take,
                labels if sees_classes else torch.zeros_like(labels),
                listed=listed(len(train), self.learner.bank.size),
                looks=self._looks(),
                progress=progress,
            )
        return TrainingData(
            feed=feed,
            labels=labels,
            index=index,
            query_view=query_view,
            key_view=key_view,
            normalise=normalise,
            image_size=self.facts.image_size,
            outlines=seen,
        )

    def _looks(self) -> Looks:
        """The ways to look at images that the views of this run have: what they leave alone tells kinds apart."""
        names = (self.config.query_view, self.config.key_view)
        seen = [
            view
            for view in map(transforms.policy, map(str, names))
            if isinstance(view, transforms.ViewPolicy)
        ]
        key_view = transforms.policy(str(self.config.key_view))
        turns = key_view.rotation if isinstance(key_view, transforms.ViewPolicy) else 0.0
        return Looks(mirror=any(view.mirror > 0 for view in seen), turn=TURN * turns)


def assemble(config: RunConfig, data: Dataset, processes: Processes, *, download: bool) -> Assembly:
    """Build what a settled config asks for; refuses what cannot be built, and writes nothing."""
    method = method_named(config.method)
    facts = encoder_facts(config, data.train)
    labels, names = _training_labels(method, data)
    backbone: Backbone | None = None
    notes: list[str] = []
    if config.freeze:
        backbone, notes = frozen.frozen_backbone(config, in_channels=facts.in_channels, download=download)
        weight = config.earlier_weight if backbone.earlier_features else 0.0
        kept = frozen.axes_kept(config.head_features, backbone.level_features(weight), len(data.train))
        facts = replace(facts, head_features=kept, earlier_weight=weight)
    learner = build_learner(
        config,
        method,
        processes,
        images=len(data.train),
        in_channels=facts.in_channels,
        classes=len(names),
        download=download,
        backbone_of=None if backbone is None else partial(FeatureHead, facts.head_features),
    )
    learner.notes.extend(notes)
    made = _views(config, facts, processes.device)
    return Assembly(config, data, processes, facts, labels, learner, backbone, made)


def load_views(config: RunConfig, device: torch.device, message: Callable[[str], None]) -> None:
    """Have the compiled loops ready where a run needs them; if they have to be compiled first, that is said."""
    if config.view_engine != "compiled" or config.freeze or device.type != "cpu":
        return
    told = threading.Timer(
        SILENT_SECONDS,
        message,
        ["compiling the loops that make views, once on this machine: about half a minute"],
    )
    told.daemon = True  # nobody waits for it at the end of a process
    told.start()
    try:
        transforms.compiled_policy(str(config.query_view))
    finally:
        told.cancel()


def _views(
    config: RunConfig, facts: EncoderFacts, device: torch.device
) -> tuple[transforms.Policy, transforms.Policy, Callable[[Tensor], Tensor]]:
    """The query's and the key's policy, and what normalises their views: compiled loops do so themselves.

    Devices other than the CPU have the tensor code only, whatever the run was begun with.
    """
    query, key = str(config.query_view), str(config.key_view)
    if config.view_engine == "compiled" and device.type == "cpu":
        compiled = partial(
            transforms.compiled_policy, mean=facts.mean, std=facts.std, channels_last=config.channels_last
        )
        return compiled(query), compiled(key), _as_they_are
    return transforms.policy(query), transforms.policy(key), facts.normalise


def _as_they_are(images: Tensor) -> Tensor:
    return images


def _training_labels(method: Method, data: Dataset) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """What the method is told about the training images: the coarse labels, or the fine ones for SupFINE."""
    if method.labels == "fine" and data.train.fine is not None and data.fine_names is not None:
        return data.train.fine, data.fine_names
    return data.train.coarse, data.coarse_names

"""Set up a run: load data, complete settings, build the learner and the views."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from maskcon import transforms
from maskcon._utils.errors import DataError, UsageError
from maskcon._utils.text import counted
from maskcon.config.backbones import mean_and_std, view_size
from maskcon.config.choices import FEWEST_TEST, FEWEST_TRAIN
from maskcon.config.settings import SMALLEST_SIZE, VALIDATION_FRACTION, Machine, RunConfig
from maskcon.data import Dataset, ImageSet, image_plan, load
from maskcon.data.dataset import Variant, channel_statistics
from maskcon.data.decoding import canvas_for
from maskcon.data.kinds_file import read_kinds
from maskcon.data.known_names import UNNAMED, KnownNames
from maskcon.data.packing import ImagePlan, Progress
from maskcon.data.photos import load_plan
from maskcon.methods.name_spreading import spread_names
from maskcon.methods.registry import Method, all_methods, method_named
from maskcon.models import Backbone, FeatureHead, FrozenEncoder, Tail
from maskcon.models.backbones import LARGEST_SMALL_IMAGE, has_own_shape
from maskcon.models.encoder_file import EncoderFacts
from maskcon.models.hog import TURN, HogNeighbours, Variants, hog_neighbours, list_length
from maskcon.retrieval.encode import Feed
from maskcon.training.callbacks import Callback
from maskcon.training.distributed import Processes
from maskcon.training.frozen import features as frozen
from maskcon.training.frozen.features import FrozenFeatures
from maskcon.training.state import Learner, build_learner
from maskcon.training.step import TrainingData

EARLIER_WEIGHT = 0.5  # frozen: of the features of earlier layers beside the last ones
HEAD_FEATURES = 256  # frozen: leading axes of the features that the head learns on


def plan_images(
    source: str | Path | Dataset,
    machine: Machine,
    progress: Progress | None = None,
    variant: Variant = "paper",
) -> ImagePlan | None:
    """Find the images of a source without decoding them; None if they come as arrays."""
    if isinstance(source, Dataset):
        return None
    return image_plan(
        str(source),
        root=None if machine.data_root is None else Path(machine.data_root),
        variant=variant,
        download=machine.download,
        strict=machine.strict,
        progress=progress,
        looking=progress,
    )


def load_dataset(
    source: str | Path | Dataset,
    config: RunConfig,
    machine: Machine,
    callback: Callback,
    plan: ImagePlan | None = None,
) -> Dataset:
    """Load the data of a config, with its limits and its validation split.

    Args:
        plan: the images of the source, if already found.
    """
    plan = plan or plan_images(source, machine, callback.on_load, config.protocol)
    if isinstance(source, Dataset):
        data = source
    elif plan is not None:
        # Small images keep their size; larger ones are shrunk to what the views need.
        canvas = None if config.image_size is None else canvas_for(config.image_size)
        data = load_plan(plan, canvas, callback.on_load)
    else:
        data = load(
            str(source),
            root=None if machine.data_root is None else Path(machine.data_root),
            variant=config.protocol,
            download=machine.download,
            progress=callback.on_load,
        )
    if config.evaluate_on == "validation":
        # in one step: a large memory-mapped set is never copied whole
        return data.hold_out(VALIDATION_FRACTION, train=config.train_limit, test=config.test_limit)
    return data.limited(config.train_limit, config.test_limit)


def check_names(config: RunConfig) -> None:
    """Raise if `fine` cannot be used, before any image is decoded."""
    if config.fine is None:
        return
    method = method_named(config.method)
    if not method.uses_names:
        known = ", ".join(other.name for other in all_methods() if other.uses_names)
        raise UsageError(
            f"--fine refines the relation to the coarse class, and {method.title} has none; "
            f"leave it out, or choose a --method of: {known}"
        )
    read_kinds(Path(config.fine))


def settle(config: RunConfig, data: Dataset) -> RunConfig:
    """Complete open settings from the data; raise if they do not fit."""
    method = method_named(config.method)
    if method.labels == "fine" and data.train.fine is None:
        raise DataError(f"{method.title} needs fine labels, and {data.name} has none")
    if config.coarse_weight > 0 and method.labels != "coarse":
        raise UsageError(
            f"coarse_weight={config.coarse_weight:g} adds the coarse labels to a method that may see them, and "
            f"{method.title} sees {method.labels if method.labels == 'fine' else 'no'} labels; leave it out"
        )
    if config.freeze and config.uses_hog:
        raise UsageError(
            "relation_space=hog compares images, and a run of a frozen backbone has only their features; "
            "leave it out, or use --set relation_space=features"
        )
    if method.labels != "none" and len(np.unique(data.train.coarse)) < 2:
        raise DataError(
            f"{data.name} has a single coarse class, so its labels say nothing; "
            "add a second class, or train without labels: --method selfcon"
        )
    if len(data.train) < FEWEST_TRAIN or len(data.test) < FEWEST_TEST:
        raise DataError(
            f"{data.name} has {counted(len(data.train), 'image')} to train on and {len(data.test)} to test on; "
            f"at least {FEWEST_TRAIN} and {FEWEST_TEST} are needed, and hundreds to learn from"
        )
    canvas = max(data.train.images.shape[2:])
    usual = max(canvas, SMALLEST_SIZE) if canvas <= LARGEST_SMALL_IMAGE else min(224, canvas)
    size = config.image_size or (view_size(config.backbone, canvas) if config.freeze else usual)
    stem = config.stem
    if has_own_shape(config.backbone) and stem == "fast":
        stem = "auto"  # such a backbone brings its own first layers
    elif stem == "fast":
        # the stem of few operations: a quarter of the small one's pixels in every later layer
        stem = "stride2" if size <= LARGEST_SMALL_IMAGE else "imagenet"
    return config.changed(
        image_size=size,
        stem=stem,
        # a frozen backbone cannot learn to recognise strong views, so it gets milder ones
        query_view=transforms.name_for(
            config.query_view or ("weak" if config.freeze else "strong"), data.family
        ),
        key_view=transforms.name_for(
            config.key_view or ("identity" if config.freeze else "weak"), data.family
        ),
    )


def encoder_facts(
    config: RunConfig, train: ImageSet, test_resize: Literal["shorter", "both"] | None = None
) -> EncoderFacts:
    """Return how images are resized and normalised for the encoder.

    test_resize: in place of the protocol's.
    """
    channels = train.images.shape[1]
    if config.normalise != "dataset":
        mean, std = mean_and_std(config.backbone if config.normalise == "backbone" else "")
        if channels == 1:  # the mean over channels, as a grey photograph would have it
            mean, std = (sum(mean) / 3,), (sum(std) / 3,)
    else:
        mean, std = channel_statistics(train)
    return EncoderFacts(
        backbone=config.backbone,
        width=config.width,
        stem="auto" if config.stem == "fast" else config.stem,  # fast is settled before this
        in_channels=channels,
        image_size=int(config.image_size or 0),
        test_resize=test_resize or config.test_resize,
        mean=tuple(mean),
        std=tuple(std),
    )


@dataclass
class Assembly:
    """A run before its first step; see `assemble`."""

    config: RunConfig
    data: Dataset
    processes: Processes
    facts: EncoderFacts
    labels: NDArray[np.int64]  # [N] labels that the method may use
    learner: Learner
    frozen_backbone: Backbone | None
    names: KnownNames | None = None

    features: FrozenFeatures | None = None
    training_data: TrainingData | None = None
    cost: tuple[float, float] = (0.0, 0.0)  # seconds and CPU seconds that `training_data` took

    def prepare(
        self, callback: Callback, on_extract: Callable[[int, int, float], None] | None = None
    ) -> TrainingData:
        """Return what the steps read: images and their views, or cached features.

        Prepared at the first call.

        on_extract: receives the progress of a frozen backbone instead of the callback.
        """
        if self.training_data is None:
            if self.frozen_backbone is not None:
                self.features = frozen.prepare(
                    self.config,
                    self.frozen_backbone,
                    self.data,
                    self.facts,
                    self.processes,
                    progress=on_extract or callback.on_extract,
                    message=callback.on_message,
                )
                self.features.place_axes(self.learner)
            wall, cpu = time.perf_counter(), time.process_time()
            self.training_data = self._training_data(callback.on_hog)
            self.cost = time.perf_counter() - wall, time.process_time() - cpu
        return self.training_data

    def close(self) -> None:
        if self.training_data is not None:
            self.training_data.feed.close()

    def _training_data(self, progress: Callable[[int, int], None]) -> TrainingData:
        device = self.processes.device
        labels = torch.from_numpy(self.labels).to(device)
        names = None if self.names is None else torch.from_numpy(self.names.kinds).to(device)
        train = self.data.train
        index = torch.from_numpy(train.index).to(device)
        if self.features is not None:
            data = self.features.training_data(labels, index, self.config, device, names)
            return self._with_spread_names(data) if self.config.learns_names else data
        feed = Feed(train.images, train.sizes, device)
        hog: HogNeighbours | None = None
        if self.config.uses_hog and self.learner.bank is not None:
            sees_classes = self.learner.method.labels != "none"
            hog = hog_neighbours(
                feed.take,
                labels if sees_classes else torch.zeros_like(labels),
                length=list_length(len(train), self.learner.bank.size),
                variants=self._variants(),
                progress=progress,
            )
        return TrainingData(
            feed=feed,
            labels=labels,
            index=index,
            query_view=transforms.policy(str(self.config.query_view)),
            key_view=transforms.policy(str(self.config.key_view)),
            normalise=self.facts.normalise,
            image_size=self.facts.image_size,
            hog=hog,
            names=names,
        )

    def _with_spread_names(self, data: TrainingData) -> TrainingData:
        """Spread known names by cached features, and set the class of each output."""
        assert data.names is not None  # `learns_names`
        assert self.names is not None
        assert self.features is not None
        plain = torch.from_numpy(self.features.train[:, self.features.query_views]).to(data.names.device)
        names = spread_names(plain, data.labels, data.names, data.names == UNNAMED)
        # one output per name, in the class of its images; then one per class, for what has no name
        named = names >= 0
        coarse_of = torch.arange(-self.names.count, len(self.data.coarse_names), device=names.device)
        coarse_of[names[named]] = data.labels[named]
        return replace(data, names=names, coarse_of=coarse_of)

    def _variants(self) -> Variants:
        """Return the variants of an image that its views may show: mirrored, turned."""
        query = transforms.policy(str(self.config.query_view))
        key = transforms.policy(str(self.config.key_view))
        mirror = any(isinstance(view, transforms.ViewPolicy) and view.mirror > 0 for view in (query, key))
        rotation = key.rotation if isinstance(key, transforms.ViewPolicy) else 0.0
        return Variants(mirror=mirror, turn=TURN * rotation)


def assemble(
    config: RunConfig,
    data: Dataset,
    processes: Processes,
    *,
    download: bool,
    test_resize: Literal["shorter", "both"] | None = None,
    names: KnownNames | None = None,
) -> Assembly:
    """Build the learner, frozen backbone and views of a run; writes nothing to disk."""
    method = method_named(config.method)
    facts = encoder_facts(config, data.train, test_resize)
    labels, classes = _training_labels(method, data)
    backbone: Backbone | None = None
    notes: list[str] = []
    if config.freeze:
        backbone, notes = frozen.frozen_backbone(config, in_channels=facts.in_channels, download=download)
        weight = EARLIER_WEIGHT if backbone.earlier_features else 0.0
        axes = frozen.axes_kept(HEAD_FEATURES, backbone.level_features(weight), len(data.train))
        facts = replace(facts, head_features=axes, earlier_weight=weight)
    learner = build_learner(
        config,
        method,
        processes,
        labels=torch.from_numpy(labels),
        in_channels=facts.in_channels,
        classes=len(classes) + (names.count if names is not None and config.learns_names else 0),
        download=download,
        backbone_of=None if backbone is None else partial(learning_part, backbone, facts, config.thaw),
    )
    learner.notes.extend(notes)
    return Assembly(config, data, processes, facts, labels, learner, backbone, names)


def learning_part(backbone: Backbone, facts: EncoderFacts, thaw: int) -> Backbone:
    """Return what learns in a frozen run: a head, after the last stages if thawed."""
    head = FeatureHead(facts.head_features)
    if thaw == 0:
        return head
    tail = Tail(backbone, thaw, facts.image_size)
    return FrozenEncoder(tail, head, earlier_weight=facts.earlier_weight)


def _training_labels(method: Method, data: Dataset) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return the labels that the method may use: coarse, or fine for SupFINE."""
    if method.labels == "fine" and data.train.fine is not None and data.fine_names is not None:
        return data.train.fine, data.fine_names
    return data.train.coarse, data.coarse_names

"""A dataset as cached features of a pretrained backbone.

Features fill few of their dimensions, so a run keeps the leading right singular vectors as axes. The largest axis holds
the mean of all images and says little about any one of them. So each axis is divided by its size to the power
`WHITENING`: 0 would keep the angles between features, 1 would whiten them (docs/results.md).
"""

from __future__ import annotations

import copy
import signal
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from maskcon import transforms
from maskcon._utils.errors import UsageError
from maskcon.config.backbones import on_hugging_face
from maskcon.config.settings import RunConfig
from maskcon.data import Dataset, ImageSet
from maskcon.models import Axes, Backbone, FeatureHead, FrozenEncoder, Tail, engine_of, for_inference
from maskcon.models.encoder_file import EncoderFacts
from maskcon.models.weights import load_weights, locate
from maskcon.retrieval.encode import Feed
from maskcon.training.distributed import Processes
from maskcon.training.frozen.cache import key_of
from maskcon.training.frozen.extract import (
    Extraction,
    Message,
    Progress,
    cached_features,
    describe,
    weights_hash,
)
from maskcon.training.signals import Interrupted, StopRequest
from maskcon.training.state import Learner, build_encoder
from maskcon.training.step import TrainingData

EMBED_ROWS, TAIL_ROWS = 4096, 128
CACHED_VIEWS = 3  # per image, for query and key each
IMAGES_PER_AXIS = 4
LOOKED_AT = 16384  # views, spread over all: many more than there are features
ROWS = 1024  # images read at once
WHITENING = 0.25
SMALLEST_AXIS = 0.01  # of the largest: limits the gain of axes that few images leave empty
VIEWS_SEED = 0  # of the cached views: runs of any seed share them


@dataclass(frozen=True)
class CachedView:
    """A view policy over cached features: takes one of `count` columns from `first` on, by one uniform."""

    name: str
    first: int
    count: int

    @property
    def draws(self) -> int:
        return 1

    def __call__(
        self,
        images: Tensor,
        uniforms: Tensor,
        *,
        size: int,  # noqa: ARG002 - the engine's call for any policy
        sizes: Tensor | None = None,  # noqa: ARG002
    ) -> Tensor:
        """images [B, V, F], uniforms [B, 1] -> float32 [B, F, 1, 1]: maps of one place."""
        picked = self.first + (uniforms[:, 0] * self.count).long().clamp_max(self.count - 1)  # [B]
        chosen = images[torch.arange(len(images), device=images.device), picked.to(images.device)]
        return chosen.float()[:, :, None, None]


@dataclass(frozen=True)
class FrozenFeatures:
    """Features of both parts of a dataset, along the axes of a run.

    train: [N, V, D] float16, first the views of the query's policy, then those of the key's
    query_views: how many of the V are the query's
    test: [M, D] float32, of the plain test view
    whole_test: [M, F] float32, features before axes and without earlier maps: the backbone alone
    key: of the cache of `train`: another one for another backbone, other weights, views or images
    earlier_weight: of the backbone's earlier maps beside its features, see `Backbone.levels`
    maps: what a `Tail` reads of both parts, memory-mapped, [N, V, S] float16 and [M, 1, S] float32; None if only a
        head learns
    """

    backbone: Backbone
    axes: Axes
    train: NDArray[np.float16]
    query_views: int
    test: Tensor
    whole_test: Tensor
    key: str
    earlier_weight: float
    maps: tuple[NDArray[np.float16], NDArray[np.float32]] | None = None

    def training_data(
        self,
        labels: Tensor,
        index: Tensor,
        config: RunConfig,
        device: torch.device,
        names: Tensor | None = None,
    ) -> TrainingData:
        """Return training data with cached features in place of images."""
        key_views = self.train.shape[1] - self.query_views
        return TrainingData(
            feed=Feed(self.train if self.maps is None else self.maps[0], None, device),
            labels=labels,
            index=index,
            query_view=CachedView(str(config.query_view), 0, self.query_views),
            key_view=CachedView(str(config.key_view), self.query_views, key_views),
            normalise=lambda features: features,
            image_size=1,
            names=names,
        )

    @torch.no_grad()
    def embed_test(self, head: nn.Module, rows: Tensor) -> Tensor:
        """Features [len(rows), H] of test images by the head in evaluation mode."""
        before = head.training
        head.eval()
        try:
            parts = torch.split(rows, EMBED_ROWS if self.maps is None else TAIL_ROWS)
            return torch.cat([head(self._input(part)).float() for part in parts])
        finally:
            head.train(before)

    def _input(self, rows: Tensor) -> Tensor:
        """Return the learner's input of these test images."""
        if self.maps is None:
            return self.test[rows.to(self.test.device)]
        return torch.from_numpy(np.ascontiguousarray(self.maps[1][rows.numpy(), 0])).to(self.test.device)

    def place_axes(self, learner: Learner) -> None:
        """Put the axes between tail and head, where a tail learns; they are known only once images are embedded."""
        if self.maps is not None:
            for model in [learner.model, *([learner.pair.key] if learner.pair else [])]:
                assert isinstance(model.backbone, FrozenEncoder)
                model.backbone.axes.load_state_dict(self.axes.state_dict())

    def encoder(self, learnt: Backbone) -> FrozenEncoder:
        """Join backbone and head, or with the tail in place of its last stages, to a model that embeds images."""
        backbone, head = self.backbone, learnt
        if isinstance(learnt, FrozenEncoder):
            assert isinstance(learnt.backbone, Tail)
            backbone, head = copy.deepcopy(backbone), learnt.head
            learnt.backbone.copy_into(backbone)
        assert isinstance(head, FeatureHead)  # a frozen run has no other
        return FrozenEncoder(backbone, head, self.axes, earlier_weight=self.earlier_weight)


def require_weights(config: RunConfig, *, download: bool) -> None:
    """Raise for a frozen run without pretrained weights, before anything slow; downloads them if allowed."""
    if config.weights is None:
        if on_hugging_face(config.backbone):
            return
        raise UsageError(
            "freeze=yes needs a pretrained backbone, and weights=none is a random one; "
            "use --set weights=imagenet, --set weights=FILE, or --set backbone=hf:NAME"
        )
    try:
        locate(config.backbone, config.weights, download=download)
    except UsageError as error:
        if str(error).endswith("weights=none"):  # the way out for those who train the whole encoder
            raise UsageError(f"{error}, without --freeze") from error
        raise


def frozen_backbone(config: RunConfig, *, in_channels: int, download: bool) -> tuple[Backbone, list[str]]:
    """Build the pretrained backbone of a config, in evaluation mode, with notes for the log."""
    require_weights(config, download=download)
    with torch.random.fork_rng(devices=[]):
        # what is drawn is overwritten, but for layers that the file of a Hugging Face model lacks: always the same ones
        torch.manual_seed(0)
        backbone = build_encoder(config, in_channels=in_channels, download=download)
    notes: list[str] = []
    if config.weights is not None:
        notes = load_weights(backbone, config.weights, download=download, whole=True)
    return backbone.eval().requires_grad_(False), notes


def cached_views(config: RunConfig) -> tuple[list[transforms.Policy], list[transforms.Policy]]:
    """Return the policies of the cached views of query and key; one without randomness is used once."""
    query, key = transforms.policy(str(config.query_view)), transforms.policy(str(config.key_view))
    return (
        [query] * (CACHED_VIEWS if query.draws else 1),
        [key] * (CACHED_VIEWS if key.draws else 1),
    )


def prepare(
    config: RunConfig,
    backbone: Backbone,
    data: Dataset,
    facts: EncoderFacts,
    processes: Processes,
    *,
    progress: Progress,
    message: Message,
) -> FrozenFeatures:
    """Embed what is not cached, in the first process; read the cache in all."""
    found: list[FrozenFeatures] = []

    def read() -> None:
        found.append(_read(config, backbone, data, facts, processes.device, progress, message))

    stop = StopRequest()
    with nullcontext() if processes.is_first else stop:  # a signal kills no process that waits for the first
        processes.in_first(read)
    if processes.any(stop.made):
        raise Interrupted(
            "stopped before training; embedded views are kept; rerun the same command to resume",
            stop.signal_number or signal.SIGTERM,
        )
    if not found:
        read()
    return found[0]


def _read(
    config: RunConfig,
    backbone: Backbone,
    data: Dataset,
    facts: EncoderFacts,
    device: torch.device,
    progress: Progress,
    message: Message,
) -> FrozenFeatures:
    query, key = cached_views(config)
    net, engine = for_inference(backbone, device, thaw=config.thaw), engine_of(backbone, device)
    weights = weights_hash(backbone)
    length = backbone.level_features(facts.earlier_weight)
    read = Tail(backbone, config.thaw, facts.image_size).in_channels if config.thaw else 0
    cached, keys = [], []
    parts: list[tuple[ImageSet, list[transforms.Policy | None], str]] = [
        (data.train, [*query, *key], "float16"),
        (data.test, [None], "float32"),
    ]
    for part, views, dtype in parts:
        description = describe(part, facts, weights, views, VIEWS_SEED, engine, config.thaw)
        keys.append(key_of(description))
        shape = (len(part), len(views), length + read)
        feed = Feed(part.images, part.sizes, device)
        work = Extraction(net, feed, facts, views, VIEWS_SEED, config.thaw)
        try:
            cached.append(cached_features(work, shape, dtype, description, progress, message))
        finally:
            feed.close()
    train, test = (features[:, :, :length] for features in cached)
    matrix = partly_whitened(*leading_axes(train, facts.head_features))
    projected = along(train, matrix)
    size = root_mean_square(projected)  # a size that suits a learning rate
    matrix /= size
    projected /= size
    return FrozenFeatures(
        backbone,
        Axes(len(matrix), facts.head_features, torch.from_numpy(matrix)).to(device),
        projected.astype(np.float16),
        len(query),
        torch.from_numpy(along(test, matrix)[:, 0]).to(device),
        torch.from_numpy(np.array(test[:, 0, : backbone.features])).to(device),
        keys[0],
        facts.earlier_weight,
        (cached[0][:, :, length:], cached[1][:, :, length:]) if config.thaw else None,
    )


def axes_kept(wanted: int, features: int, images: int) -> int:
    """Return the number of axes to keep: all if there are too few images.

    >>> axes_kept(256, 1280, 4000), axes_kept(256, 1280, 300), axes_kept(2000, 1280, 10_000)
    (256, 1280, 1280)
    """
    return wanted if wanted < features and images >= IMAGES_PER_AXIS * wanted else features


def leading_axes(
    features: NDArray[np.floating[Any]], kept: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return orthonormal columns [F, kept] of features [N, V, F], and the root mean square along each [kept].

    The largest comes first. Each points to the side of its largest entry, so the same features give the same axes.
    """
    count, views, size = features.shape
    chosen = np.linspace(0, count - 1, min(count, max(LOOKED_AT // views, 1))).astype(np.int64)
    moments = np.zeros((size, size))
    for start in range(0, len(chosen), ROWS):
        rows = np.asarray(features[chosen[start : start + ROWS]], dtype=np.float64).reshape(-1, size)
        moments += rows.T @ rows
    squares, axes = np.linalg.eigh(moments / max(len(chosen) * views, 1))
    squares, axes = squares[::-1][:kept], axes[:, ::-1][:, :kept]  # eigh: smallest first
    largest = np.abs(axes).argmax(axis=0)
    signs = np.where(axes[largest, np.arange(kept)] < 0, -1.0, 1.0)
    return (axes * signs).astype(np.float32), np.sqrt(squares.clip(0)).astype(np.float32)


def partly_whitened(axes: NDArray[np.float32], sizes: NDArray[np.float32]) -> NDArray[np.float32]:
    """Divide axes [F, D] by their sizes [D] to the power `WHITENING`.

    >>> partly_whitened(np.eye(2, dtype=np.float32), np.array([16.0, 1.0], dtype=np.float32)).diagonal()
    array([0.5, 1. ], dtype=float32)
    """
    largest = sizes.max()
    if largest == 0:
        return axes
    whitened: NDArray[np.float32] = axes / np.maximum(sizes, SMALLEST_AXIS * largest) ** np.float32(WHITENING)
    return whitened


def along(features: NDArray[np.floating[Any]], matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return features [N, V, F] @ matrix [F, D], computed in parts: [N, V, D]."""
    out = np.empty((*features.shape[:2], matrix.shape[1]), dtype=np.float32)
    for start in range(0, len(features), ROWS):
        out[start : start + ROWS] = np.asarray(features[start : start + ROWS], dtype=np.float32) @ matrix
    return out


def root_mean_square(values: NDArray[np.floating[Any]]) -> float:
    """Return the root mean square of all values; 1 if all are zero."""
    total = sum(
        float(np.square(values[start : start + ROWS], dtype=np.float64).sum())
        for start in range(0, len(values), ROWS)
    )
    return float(np.sqrt(total / values.size)) or 1.0

"""Query model, momentum encoder, and running means of queries as keys."""

from __future__ import annotations

import copy
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor, nn

from maskcon._utils.errors import UsageError
from maskcon.models.base import Backbone
from maskcon.models.heads import CoarseClassifier, Projector, unit_rows


class Output(NamedTuple):
    """Outputs of a forward pass; None where the model has no such head."""

    features: Tensor  # [B, F], before the projector: for evaluation and search
    projection: Tensor | None  # [B, D], unit rows, float32: for the contrastive loss
    logits: Tensor | None  # [B, classes]: for the coarse cross-entropy


class Model(nn.Module):
    """Backbone, projector and coarse classifier behind one `forward`.

    One `forward` for all parts, because wrappers of distributed training only see calls of `forward`.
    Omit parts that a method does not train: these wrappers wait for the gradient of every parameter.

    >>> from maskcon.models.backbones import build_backbone
    >>> model = build_model(build_backbone("resnet8", image_size=32, width=16), coarse_classes=5)
    >>> output = model(torch.zeros(2, 3, 32, 32))
    >>> output.features.shape, output.projection.shape, output.logits.shape
    (torch.Size([2, 64]), torch.Size([2, 128]), torch.Size([2, 5]))
    """

    def __init__(
        self,
        backbone: Backbone,
        projector: Projector | None = None,
        classifier: CoarseClassifier | None = None,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.projector = projector
        self.classifier = classifier

    @property
    def features(self) -> int:
        """F, the length of a feature vector."""
        return self.backbone.features

    def forward(self, images: Tensor) -> Output:
        """Return the `Output` of images [B, C, H, W]."""
        features: Tensor = self.backbone(images)  # [B, F]
        return Output(
            features,
            *(None if head is None else head(features) for head in (self.projector, self.classifier)),
        )


def build_model(
    backbone: Backbone,
    *,
    projection: int | None = 128,
    hidden: int = 512,
    coarse_classes: int | None = None,
) -> Model:
    """Build a model with new heads on `backbone`; None omits a head."""
    size = backbone.features
    return Model(
        backbone,
        None if projection is None else Projector(size, hidden, projection),
        None if coarse_classes is None else CoarseClassifier(size, coarse_classes),
    )


class MomentumPair(nn.Module):
    """A query model and its momentum encoder, a moving average without gradient.

    Args:
        query: the model that is trained; it needs a projector.

    As in the authors' code, the BatchNorm of the momentum encoder normalises keys by their batch, and its running
    statistics are its own: only parameters are averaged.

    The training step calls `update` before the forward pass:

        pair.update(momentum=0.99)
        keys = pair.encode_keys(key_views)          # [B, D], no gradient
        output = pair.query(query_views)            # features, projection, logits
    """

    def __init__(self, query: Model) -> None:
        super().__init__()
        if query.projector is None:
            raise UsageError("a momentum pair compares projections, and this model has no projector")
        self.query = query
        self.key = Model(copy.deepcopy(query.backbone), copy.deepcopy(query.projector))
        self.key.requires_grad_(False)
        self.train(query.training)

    @torch.no_grad()
    def update(self, momentum: float) -> None:
        """Set key = momentum * key + (1 - momentum) * query, for backbone and projector."""
        if not 0.0 <= momentum <= 1.0:
            raise UsageError(f"key {momentum=} must lie between 0 and 1 (0.99 is usual)")
        followers, leaders = self._parameters_of_both
        if any(parameter.dtype in (torch.float16, torch.bfloat16) for parameter in followers):
            # 0.01 of a small difference rounds to 0 there, and the key would stop moving
            raise UsageError("the key model needs float32 parameters; use mixed precision instead of half")
        torch._foreach_lerp_(followers, leaders, 1.0 - momentum)

    def encode_keys(self, images: Tensor) -> Tensor:
        """Return unit projections [B, D], float32, of the key views [B, C, H, W]."""
        return self.encode_keys_and_features(images)[0]

    @torch.no_grad()
    def encode_keys_and_features(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return unit projections [B, D] and features [B, F] of the key views."""
        output: Output = self.key(images)
        assert output.projection is not None  # checked in __init__
        return output.projection, output.features

    @cached_property
    def _parameters_of_both(self) -> tuple[list[Tensor], list[Tensor]]:
        """Parameters of key and query, alike in order; listing them costs half an update."""
        leaders = dict(self.query.named_parameters())  # it may have a classifier, which the key has not
        return list(self.key.parameters()), [leaders[name] for name, _ in self.key.named_parameters()]


class KeyMeans(nn.Module):
    """Running means of the queries of all training images, saved in the `state_dict`.

        mean = unit(kept * mean + (1 - kept) * query)

    A momentum encoder costs about a quarter of a step, these means almost nothing (see docs/performance.md).

    Args:
        images: N.
        dim: D.
        kept: weight of the old mean, 0 <= kept < 1; at 0 the mean is the last query.

    Example:
        >>> means = KeyMeans(images=3, dim=2, kept=0.5)
        >>> means.take_in(torch.tensor([0, 2]), torch.eye(2))
        >>> means.take_in(torch.tensor([0]), torch.tensor([[0.0, 1.0]]))
        >>> unseen = torch.tensor([[-1.0, 0.0]] * 3)
        >>> means.of(torch.arange(3), unseen)
        tensor([[ 0.7071,  0.7071],
                [-1.0000,  0.0000],
                [ 0.0000,  1.0000]])
    """

    def __init__(
        self, images: int, dim: int, *, kept: float, device: torch.device | str | None = None
    ) -> None:
        super().__init__()
        if not 0 <= kept < 1:
            raise ValueError(f"{kept=} must be at least 0 and less than 1")
        self.kept = kept
        self._means: Tensor
        self.register_buffer("_means", torch.zeros(images, dim, device=device))

    @torch.no_grad()
    def of(self, rows: Tensor, queries: Tensor) -> Tensor:
        """Return keys ``[B, D]`` of images ``[B]``; without a mean, the query ``[B, D]``."""
        found = self._means[rows]
        return torch.where(found.any(dim=1, keepdim=True), found, queries.float())

    @torch.no_grad()
    def take_in(self, rows: Tensor, queries: Tensor) -> None:
        """Update the means of images ``[B]`` with unit queries ``[B, D]``.

        The first query of an image becomes its mean.
        """
        mixed = torch.lerp(queries.float(), self.of(rows, queries), self.kept)
        self._means[rows] = unit_rows(mixed)

    def extra_repr(self) -> str:
        return f"images={len(self._means)}, dim={self._means.shape[1]}, kept={self.kept:g}"

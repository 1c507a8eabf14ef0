"""The trainable head of a frozen backbone, and the two as one encoder that embeds images."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from maskcon._utils.errors import UsageError
from maskcon.models.base import Backbone


class FeatureHead(Backbone):
    """One linear layer over what a frozen backbone saw, [B, D] (or [B, D, 1, 1]) -> [B, D].

    It starts as the identity, so that training begins with the backbone alone and loses nothing of it. To the engine it
    is the backbone: the part of the model before projector and classifier.

    >>> FeatureHead(256)(torch.ones(2, 256, 1, 1)).shape
    torch.Size([2, 256])
    """

    def __init__(self, features: int) -> None:
        super().__init__()
        if features < 1:
            raise UsageError(f"a head needs at least 1 feature: {features=}")
        self.name = "head"
        self.in_channels = self.features = features
        self.layer = nn.Linear(features, features)
        nn.init.eye_(self.layer.weight)
        nn.init.zeros_(self.layer.bias)

    def forward(self, images: Tensor) -> Tensor:
        out: Tensor = self.layer(images.flatten(1))
        return out


class Axes(nn.Module):
    """Features in fixed coordinates: [B, F] @ [F, D].

    matrix: [F, D], by default the first D features as they are. A run sets it to the leading axes of its features,
    divided by their size (see `maskcon.training.frozen.axes`).
    """

    matrix: Tensor

    def __init__(self, features: int, kept: int, matrix: Tensor | None = None) -> None:
        super().__init__()
        self.register_buffer("matrix", torch.eye(features, kept) if matrix is None else matrix)

    def forward(self, features: Tensor) -> Tensor:
        return features @ self.matrix


class FrozenEncoder(Backbone):
    """Backbone, axes and head as one encoder: images [B, C, H, W] -> features [B, head.features].

    earlier_weight: of the backbone's earlier maps beside its features, see `Backbone.levels`.
    """

    def __init__(
        self, backbone: Backbone, head: FeatureHead, axes: Axes | None = None, *, earlier_weight: float = 0.0
    ) -> None:
        super().__init__()
        self.name = backbone.name
        self.in_channels = backbone.in_channels
        self.features = head.features
        self.backbone = backbone
        self.earlier_weight = earlier_weight
        seen = backbone.level_features(earlier_weight)
        self.axes = Axes(seen, head.features) if axes is None else axes
        self.head = head

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.head(self.axes(self.backbone.levels(images, self.earlier_weight)))
        return features

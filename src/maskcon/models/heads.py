"""Heads on features: projector, coarse classifier, head of a frozen backbone."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from maskcon._utils.errors import UsageError
from maskcon.models.base import Backbone

_SMALLEST_NORM = 1e-12


def unit_rows(vectors: Tensor) -> Tensor:
    """Normalise rows to length 1, in float32; zero rows stay zero, without gradient.

    Args:
        vectors: [B, D], any floating type. float64 stays float64.

    Division by a clamped norm alone would multiply the gradient of a zero row by 1e12.

    >>> unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    if vectors.dtype != torch.float64:
        vectors = vectors.float()  # half precision would leave |q| off 1 by up to a percent
    norms = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)  # [B, 1]
    zero = norms <= _SMALLEST_NORM  # False for NaN, which must stay visible
    return torch.where(zero, 0.0, vectors / norms.clamp_min(_SMALLEST_NORM))  # [B, D]


class Projector(nn.Module):
    """MLP from features [B, F] to unit vectors [B, D], which the loss compares.

    Args:
        in_features: F.
        hidden: width of the one hidden layer; 512 in the paper.
        out: D; 128 in the paper's text, 256 in its authors' code.

    >>> Projector(512)(torch.randn(4, 512)).shape
    torch.Size([4, 128])
    """

    def __init__(self, in_features: int, hidden: int = 512, out: int = 128) -> None:
        super().__init__()
        if min(in_features, hidden, out) < 1:
            raise UsageError(f"a projector needs sizes of at least 1: {in_features=}, {hidden=}, {out=}")
        self.layers = nn.Sequential(
            nn.Linear(in_features, hidden), nn.ReLU(inplace=True), nn.Linear(hidden, out)
        )

    def forward(self, features: Tensor) -> Tensor:
        """Return unit rows [B, D], in float32 also under autocast."""
        projection: Tensor = self.layers(features)
        with torch.autocast(projection.device.type, enabled=False):
            return unit_rows(projection)


class CoarseClassifier(nn.Module):
    """Linear classifier of features [B, F], for the cross-entropy term."""

    def __init__(self, in_features: int, classes: int) -> None:
        super().__init__()
        if classes < 2:
            raise UsageError(f"a classifier needs at least 2 coarse classes, got {classes=}")
        self.linear = nn.Linear(in_features, classes)

    def forward(self, features: Tensor) -> Tensor:
        """Return logits [B, classes]."""
        logits: Tensor = self.linear(features)
        return logits


class FeatureHead(Backbone):
    """One linear layer on frozen features, [B, D] (or [B, D, 1, 1]) -> [B, D].

    It starts as the identity. In a frozen run it takes the place of the backbone, before projector and classifier.

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
    """Fixed linear map of features: [B, F] @ [F, D].

    matrix: [F, D], by default the first D features. A run sets it to the leading axes of its features,
    divided by their size (see `maskcon.training.frozen.features`).
    """

    matrix: Tensor

    def __init__(self, features: int, axes: int, matrix: Tensor | None = None) -> None:
        super().__init__()
        self.register_buffer("matrix", torch.eye(features, axes) if matrix is None else matrix)

    def forward(self, features: Tensor) -> Tensor:
        return features @ self.matrix


class FrozenEncoder(Backbone):
    """Backbone, axes and head as one encoder: [B, C, H, W] -> [B, head.features].

    earlier_weight: weight of the backbone's earlier maps, see `Backbone.levels`.
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
        self.axes = Axes(backbone.level_features(earlier_weight), head.features) if axes is None else axes
        self.head = head

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.head(self.axes(self.backbone.levels(images, self.earlier_weight)))
        return features

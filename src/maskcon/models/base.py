"""Interface of all backbones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor, nn


class Backbone(nn.Module):
    """Map images to one feature vector per image.

    A subclass sets the three attributes and implements `forward(images [B, C, H, W]) -> [B, F]`.

    Attributes:
        name: name in `build_backbone(name)`.
        features: F, the length of the feature vector.
        earlier_features: E, length of the features that `levels` adds; 0 if it adds none.
        in_channels: C, number of image channels.
        first_layer: name of the first convolution [out, C, k, k]; `load_weights` adapts its colour weights to grey
            images.
    """

    first_layer: ClassVar[str] = "conv1.weight"

    name: str
    features: int
    earlier_features: int = 0
    in_channels: int

    def forward(self, images: Tensor) -> Tensor:
        """Features [B, F] of images [B, C, H, W]."""
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def levels(self, images: Tensor, weight: float) -> Tensor:
        """Return features [B, F]; if weight > 0, features of earlier maps are appended, [B, F + E].

        With weight > 0 features have length 1 and those of each earlier map length `weight`, so that the cosine of two
        rows is a weighted mean of the cosines at all levels.
        """
        if weight > 0 and self.earlier_features > 0:
            raise NotImplementedError(f"{type(self).__name__} has no levels")
        features: Tensor = self(images)
        return features

    def level_features(self, weight: float) -> int:
        """Return the length of a row of `levels`."""
        return self.features + (self.earlier_features if weight > 0 else 0)

    def translate(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Rename the tensors of a published file to this net's names; unchanged by default."""
        return dict(state)

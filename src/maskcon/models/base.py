"""What the rest of the package may expect of a backbone, whichever architecture it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor, nn


class Backbone(nn.Module):
    """Images in, one feature vector an image out.

    A subclass sets the three attributes and implements `forward(images [B, C, H, W]) -> [B, F]`.

    Attributes:
        name: the name it is built by, as in `build_backbone(name)`.
        features: F, the length of the feature vector.
        earlier_features: E, how many more numbers `levels` gives; 0 for a net that keeps its inner maps to itself.
        in_channels: C, the number of image channels it takes.
        first_layer: name of the convolution [out, C, k, k] that sees the image; published colour weights of it are
            fitted to grey images.
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
        """Features [B, F] and, if weight > 0, behind them those of earlier maps, [B, F + E].

        With weight > 0 the features have length 1 and those of each earlier map the length `weight`, so that the cosine
        of two rows is a mean of the cosines at all levels.
        """
        if weight > 0 and self.earlier_features > 0:
            raise NotImplementedError(f"{type(self).__name__} has no levels")
        features: Tensor = self(images)
        return features

    def level_features(self, weight: float) -> int:
        """How many numbers an image `levels` gives."""
        return self.features + (self.earlier_features if weight > 0 else 0)

    def translate(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Tensors of a published file under this net's own names; here they are the same."""
        return dict(state)

"""What the rest of the package may expect of a backbone, whichever architecture it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor, nn

HUGGING_FACE_PREFIX = "hf:"  # of the names of backbones that come from there


class Backbone(nn.Module):
    """Images in, one feature vector an image out.

    A subclass sets the three attributes and implements `forward(images [B, C, H, W]) -> [B, F]`.

    Attributes:
        name: the name it is built by, as in `build_backbone(name)`.
        features: F, the length of the feature vector.
        in_channels: C, the number of image channels it takes.
        first_layer: name of the convolution [out, C, k, k] that sees the image; published colour weights of it are
            fitted to grey images.
    """

    first_layer: ClassVar[str] = "conv1.weight"

    name: str
    features: int
    in_channels: int

    def forward(self, images: Tensor) -> Tensor:
        """Features [B, F] of images [B, C, H, W]."""
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def translate(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Tensors of a published file under this net's own names; here they are the same."""
        return dict(state)

"""What the rest of the package may expect of a backbone, whichever architecture it is."""

from __future__ import annotations

from torch import Tensor, nn

HUGGING_FACE_PREFIX = "hf:"  # of the names of backbones that come from there


class Backbone(nn.Module):
    """Images in, one feature vector an image out.

    A subclass sets the three attributes and implements `forward(images [B, C, H, W]) -> [B, F]`.

    Attributes:
        name: the name it is built by, as in `build_backbone(name)`.
        features: F, the length of the feature vector.
        in_channels: C, the number of image channels it takes.
    """

    name: str
    features: int
    in_channels: int

    def forward(self, images: Tensor) -> Tensor:
        """Features [B, F] of images [B, C, H, W]."""
        raise NotImplementedError(f"{type(self).__name__} has no forward")

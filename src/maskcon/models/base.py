"""Interface of all backbones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize


class Backbone(nn.Module):
    """Map images to one feature vector per image.

    A subclass sets name, features and in_channels and implements `forward(images [B, C, H, W]) -> [B, F]`.

    Attributes:
        name: name in `build_backbone(name)`.
        features: F, the length of the feature vector.
        in_channels: C, number of image channels.
        earlier_stages: numbers of the stages whose last maps `levels` adds.
        earlier_features: E, length of the features that `levels` adds; 0 if it adds none.
        first_layer: name of the first convolution [out, C, k, k]; `load_weights` adapts its colour weights to grey
            images.
    """

    first_layer: ClassVar[str] = "conv1.weight"

    name: str
    features: int
    earlier_stages: tuple[int, ...] = ()
    earlier_features: int = 0
    in_channels: int

    def forward(self, images: Tensor) -> Tensor:
        """Compute features [B, F] of images [B, C, H, W]."""
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def stages(self) -> list[list[nn.Module]]:
        """Return the layers by stage, up to the map whose mean is the features.

        Empty if they are unknown. The last stages can learn while those before them stay frozen, see `Tail`.
        """
        return []

    def levels(self, images: Tensor, weight: float, thaw: int = 0) -> Tensor:
        """Return features [B, F], followed by those of earlier maps if weight > 0.

        With weight > 0, [B, F + E], features have length 1 and those of each earlier map length `weight`, so that the
        cosine of two rows is a weighted mean of the cosines at all levels.

        thaw: if > 0, the input of a `Tail` of this many stages is appended, [B, F + E + S].
        """
        if thaw == 0 and (weight <= 0 or self.earlier_features == 0):
            features: Tensor = self(images)
            return features
        stages = list(enumerate(self.stages()))
        cut = len(stages) - thaw
        means: list[Tensor] = []
        maps = self.pass_through(stages[:cut], images, means)
        read = [*means, flat(maps)] if thaw else []
        last = self.pass_through(stages[cut:], maps, means)
        return torch.cat([join_levels([last.mean(dim=(2, 3)), *means], weight), *read], dim=1)

    def pass_through(
        self, stages: Iterable[tuple[int, Iterable[nn.Module]]], maps: Tensor, means: list[Tensor]
    ) -> Tensor:
        """Return the last map of numbered stages; append those of `earlier_stages`.

        means: the list to which the means of their last maps are appended.
        """
        for number, stage in stages:
            for layer in stage:
                maps = layer(maps)
            if number in self.earlier_stages:
                means.append(maps.mean(dim=(2, 3)))
        return maps

    def level_features(self, weight: float) -> int:
        """Return the length of a row of `levels`."""
        return self.features + (self.earlier_features if weight > 0 else 0)

    def translate(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Rename the tensors of a published file to this net's names, where they differ."""
        return dict(state)


def flat(maps: Tensor) -> Tensor:
    """Return maps [B, C, H, W] as rows [B, H * W * C], channels last."""
    return maps.permute(0, 2, 3, 1).flatten(1)


def join_levels(means: Sequence[Tensor], weight: float) -> Tensor:
    """Join features [B, F] and means of earlier maps [B, C] as in `Backbone.levels`."""
    if weight <= 0:
        return means[0]
    features, *earlier = (normalize(mean, dim=1) for mean in means)
    return torch.cat([features, *(weight * mean for mean in earlier)], dim=1)

"""The last stages of a pretrained net, trained on cached maps of earlier stages."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from maskcon._utils.errors import UsageError
from maskcon.models.base import Backbone, join_levels


class Tail(Backbone):
    """Copy of the last stages of a net in evaluation mode.

    It maps rows [B, S] (or [B, S, 1, 1]) to features [B, F], and `levels` to those of the whole net. S, here
    `in_channels`, is what the net's `levels` appends for this `thaw`: the means of earlier maps before the cut, then
    the map at the cut.

    Args:
        thaw: number of stages, at least 1; one stays frozen.
        image_size: H = W of the images.
    """

    def __init__(self, net: Backbone, thaw: int, image_size: int) -> None:
        super().__init__()
        stages = net.stages()
        most = max(len(stages) - 1, 0)
        if not 1 <= thaw <= most:
            raise UsageError(
                f"thaw={thaw} cannot be used: {net.name} has {most} stages that can learn; choose 1 to {most}"
                if most
                else f"thaw={thaw} cannot be used: {net.name} is not split into stages; choose another backbone, or "
                "leave it out"
            )
        self.name, self.features = net.name, net.features
        self.earlier_stages, self.earlier_features = net.earlier_stages, net.earlier_features
        self.first = len(stages) - thaw
        means: list[Tensor] = []
        with torch.no_grad():
            blank = next(net.parameters()).new_zeros(1, net.in_channels, image_size, image_size)
            maps = self.pass_through(enumerate(stages[: self.first]), blank, means)
        _, self.channels, self.height, self.width = maps.shape
        self.sizes = [*(mean.shape[1] for mean in means), maps.numel()]
        self.in_channels = sum(self.sizes)
        self.layers = nn.ModuleList(
            nn.ModuleList(copy.deepcopy(stage)) for stage in stages[self.first :]
        ).requires_grad_()

    def forward(self, images: Tensor) -> Tensor:
        return self.levels(images, 0.0)

    def levels(self, images: Tensor, weight: float, thaw: int = 0) -> Tensor:  # noqa: ARG002 - cut already
        *means, row = torch.split(images.flatten(1), self.sizes, dim=1)
        maps = row.reshape(-1, self.height, self.width, self.channels).permute(0, 3, 1, 2)
        stages = enumerate((stage.children() for stage in self.layers), start=self.first)
        last = self.pass_through(stages, maps, means)
        return join_levels([last.mean(dim=(2, 3)), *means], weight)

    def copy_into(self, net: Backbone) -> None:
        """Copy the weights of these stages into the last stages of a net."""
        for ours, theirs in zip(self.layers, net.stages()[self.first :], strict=True):
            nn.ModuleList(theirs).load_state_dict(ours.state_dict())

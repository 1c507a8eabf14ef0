"""MobileNetV2 (Sandler et al., 2018), which published weights fit.

Published files call its layers `features.0.0`, `features.1.conv.0.0`, ..., `features.18.1`; ours are the same behind
`layers.`, because `features` is the length of a vector in our contract. Older files number the layers of a block
without grouping them (`features.2.conv.3` for `features.2.conv.1.0`). `translate` reads both. There is no
`classifier`: see `heads` for what follows the pooled features.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from maskcon._utils.errors import UsageError
from maskcon.models.base import Backbone

NAME = "mobilenet_v2"
STEM_CHANNELS, FEATURES = 32, 1280
# expansion t, channels c, blocks n, stride s of the first block: table 2 of the paper
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
# Layers whose maps `levels` adds: the ends of the stages of 96 and of 160 channels.
EARLIER_LAYERS = (13, 16)

_PUBLISHED, _OURS = "features.", "layers."
_UNGROUPED = re.compile(r"layers\.(\d+)\.conv\.(\d+)\.(\w+)")
_UNGROUPED_MARK = "layers.1.conv.0.weight"  # with groups, that place holds a group and no weight


def _conv_norm_relu(
    in_channels: int, out_channels: int, kernel: int, *, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(out_channels),
        nn.ReLU6(inplace=True),
    )


class InvertedResidual(nn.Module):
    """Widen by 1x1, filter each channel by 3x3, narrow by 1x1 without activation; add the input where shapes allow."""

    def __init__(self, in_channels: int, out_channels: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = in_channels * expansion
        self.adds_input = stride == 1 and in_channels == out_channels
        widen = [] if expansion == 1 else [_conv_norm_relu(in_channels, inner, 1)]
        self.conv = nn.Sequential(
            *widen,
            _conv_norm_relu(inner, inner, 3, stride=stride, groups=inner),
            nn.Conv2d(inner, out_channels, 1, bias=False),
            nn.BatchNorm2d(out_channels),
        )

    def forward(self, maps: Tensor) -> Tensor:
        out: Tensor = self.conv(maps)
        return maps + out if self.adds_input else out


class MobileNetV2(Backbone):
    """MobileNetV2 of width 1.0 without classifier: images [B, C, H, W] -> features [B, 1280].

    Any image size works; at 32 pixels the last map has a single pixel, so enlarge small images.
    in_channels: C; 3 for colour, 1 for grey.

    >>> import torch
    >>> net = MobileNetV2().eval()
    >>> net(torch.zeros(2, 3, 48, 64)).shape, net.features
    (torch.Size([2, 1280]), 1280)
    """

    first_layer = "layers.0.0.weight"

    def __init__(self, *, in_channels: int = 3) -> None:
        super().__init__()
        if in_channels < 1:
            raise UsageError(f"{in_channels=} must be at least 1 (1 for grey, 3 for colour images)")
        self.name = NAME
        self.in_channels = in_channels
        self.features = FEATURES
        self.earlier_features = 0
        channels = STEM_CHANNELS
        self.layers = nn.Sequential(_conv_norm_relu(in_channels, channels, 3, stride=2))
        for expansion, out_channels, count, first_stride in STAGES:
            for position in range(count):
                stride = first_stride if position == 0 else 1
                self.layers.append(InvertedResidual(channels, out_channels, stride, expansion))
                channels = out_channels
                if len(self.layers) - 1 in EARLIER_LAYERS:
                    self.earlier_features += channels
        self.layers.append(_conv_norm_relu(channels, FEATURES, 1))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.layers(images)  # [B, F, H/32, W/32]
        return maps.mean(dim=(2, 3))  # [B, F]

    def levels(self, images: Tensor, weight: float) -> Tensor:
        """Features [B, 1280] and, if weight > 0, behind them those of `EARLIER_LAYERS`; see `Backbone.levels`."""
        if weight <= 0:
            return self.forward(images)
        maps, earlier = images, []
        for number, layer in enumerate(self.layers):
            maps = layer(maps)
            if number in EARLIER_LAYERS:
                earlier.append(weight * normalize(maps.mean(dim=(2, 3)), dim=1))
        return torch.cat([normalize(maps.mean(dim=(2, 3)), dim=1), *earlier], dim=1)

    def translate(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Rename the tensors of a published file, grouped or not, to our names."""
        ours = {
            _OURS + name.removeprefix(_PUBLISHED) if name.startswith(_PUBLISHED) else name: value
            for name, value in state.items()
        }
        if _UNGROUPED_MARK in ours:
            ours = {_grouped(name): value for name, value in ours.items()}
        return ours


def _grouped(name: str) -> str:
    """Return the grouped name of an ungrouped one: three layers (convolution, norm, activation) per group.

    >>> _grouped("layers.2.conv.4.bias"), _grouped("layers.2.conv.6.weight"), _grouped("layers.1.conv.4.weight")
    ('layers.2.conv.1.1.bias', 'layers.2.conv.2.weight', 'layers.1.conv.2.weight')
    """
    found = _UNGROUPED.fullmatch(name)
    if found is None:
        return name
    block, place, field = int(found[1]), int(found[2]), found[3]
    groups = 1 if block == 1 else 2  # the first block does not widen
    group, inside = divmod(place, 3)
    where = f"{group}.{inside}" if group < groups else f"{groups + inside}"
    return f"layers.{block}.conv.{where}.{field}"

"""Nets of inverted residuals, and MobileNetV2 (Sandler et al., 2018).

Published files of MobileNetV2 call its layers `features.0.0`, `features.1.conv.0.0`, ..., `features.18.1`; here they
begin with `layers.` instead, because `features` is the length of a vector in `Backbone`. Older files number the layers
of a block without grouping them (`features.2.conv.3` for `features.2.conv.1.0`). `translate` reads both. There is no
`classifier`: see `heads` for what follows the pooled features.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor, nn
from torch.nn.functional import pad

from maskcon._utils.errors import UsageError
from maskcon.models.base import Backbone

STEM_CHANNELS, FEATURES = 32, 1280


@dataclass(frozen=True)
class Stage:
    """Blocks of one width; the first has the stride."""

    expansion: int  # t
    channels: int  # c
    blocks: int  # n
    stride: int  # s
    kernel: int = 3


NAME = "mobilenet_v2"
STAGES = (  # table 2 of the paper
    Stage(1, 16, 1, 1),
    Stage(6, 24, 2, 2),
    Stage(6, 32, 3, 2),
    Stage(6, 64, 4, 2),
    Stage(6, 96, 3, 1),
    Stage(6, 160, 3, 2),
    Stage(6, 320, 1, 1),
)
EARLIER_STAGES = (4, 5)  # their last maps are what `levels` adds

_PUBLISHED, _OURS = "features.", "layers."
_UNGROUPED = re.compile(r"layers\.(\d+)\.conv\.(\d+)\.(\w+)")
_UNGROUPED_MARK = "layers.1.conv.0.weight"  # with groups, that place holds a group and no weight


class SameConv2d(nn.Conv2d):
    """Convolution with TensorFlow's "same" padding.

    The odd pixel of an uneven padding goes to the right or bottom.

    >>> import torch
    >>> SameConv2d(1, 1, 3, stride=2)(torch.zeros(1, 1, 8, 7)).shape
    torch.Size([1, 1, 4, 4])
    """

    def forward(self, images: Tensor) -> Tensor:
        (high, wide), (down, right) = self.kernel_size, self.stride
        top, bottom = _same(images.shape[2], high, down)
        left, far = _same(images.shape[3], wide, right)
        if (top, left) == (bottom, far):
            return nn.functional.conv2d(
                images, self.weight, self.bias, self.stride, (top, left), self.dilation, self.groups
            )
        return super().forward(pad(images, (left, far, top, bottom)))


def _same(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Return the padding before and after one side, for ceil(size / stride) outputs.

    >>> _same(8, 3, 2), _same(7, 3, 2), _same(8, 5, 2), _same(8, 5, 1)
    ((0, 1), (1, 1), (1, 2), (2, 2))
    """
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


@dataclass(frozen=True)
class Layers:
    """Factory of a net's convolutions, each with BatchNorm.

    same: TensorFlow's padding instead of half of the kernel on each side
    """

    same: bool = False
    epsilon: float = 1e-5  # of BatchNorm

    def conv_norm(
        self, in_channels: int, out_channels: int, kernel: int, *, stride: int = 1, groups: int = 1
    ) -> list[nn.Module]:
        kind, padding = (SameConv2d, 0) if self.same and stride > 1 else (nn.Conv2d, kernel // 2)
        return [
            kind(in_channels, out_channels, kernel, stride, padding, groups=groups, bias=False),
            nn.BatchNorm2d(out_channels, eps=self.epsilon),
        ]

    def conv_norm_relu(
        self, in_channels: int, out_channels: int, kernel: int, *, stride: int = 1, groups: int = 1
    ) -> nn.Sequential:
        layers = self.conv_norm(in_channels, out_channels, kernel, stride=stride, groups=groups)
        return nn.Sequential(*layers, nn.ReLU6(inplace=True))


class InvertedResidual(nn.Module):
    """Widen by 1x1, filter each channel, narrow by 1x1 without activation.

    The input is added where shapes allow.
    """

    def __init__(
        self, layers: Layers, in_channels: int, out_channels: int, stride: int, expansion: int, kernel: int
    ) -> None:
        super().__init__()
        inner = in_channels * expansion
        self.adds_input = stride == 1 and in_channels == out_channels
        widen = [] if expansion == 1 else [layers.conv_norm_relu(in_channels, inner, 1)]
        self.conv = nn.Sequential(
            *widen,
            layers.conv_norm_relu(inner, inner, kernel, stride=stride, groups=inner),
            *layers.conv_norm(inner, out_channels, 1),
        )

    def forward(self, maps: Tensor) -> Tensor:
        out: Tensor = self.conv(maps)
        return maps + out if self.adds_input else out


class InvertedResidualNet(Backbone):
    """Inverted residuals without classifier: [B, C, H, W] -> features [B, 1280].

    Any image size works; at 32 pixels the last map has a single pixel, so enlarge small images.
    """

    first_layer = "layers.0.0.weight"

    def __init__(self, name: str, stages: Sequence[Stage], layers: Layers, in_channels: int) -> None:
        super().__init__()
        if in_channels < 1:
            raise UsageError(f"{in_channels=} must be at least 1 (1 for grey, 3 for colour images)")
        self.name = name
        self.in_channels = in_channels
        self.features = FEATURES
        self.earlier_stages = EARLIER_STAGES
        self.earlier_features = sum(stages[number].channels for number in EARLIER_STAGES)
        channels = STEM_CHANNELS
        self.layers = nn.Sequential(layers.conv_norm_relu(in_channels, channels, 3, stride=2))
        self._starts = [0]  # of the stages; the first layer belongs to the first stage, the last to the last
        for stage in stages:
            for position in range(stage.blocks):
                stride = stage.stride if position == 0 else 1
                block = InvertedResidual(
                    layers, channels, stage.channels, stride, stage.expansion, stage.kernel
                )
                self.layers.append(block)
                channels = stage.channels
            self._starts.append(len(self.layers))
        self.layers.append(layers.conv_norm_relu(channels, FEATURES, 1))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.layers(images)  # [B, F, H/32, W/32]
        return maps.mean(dim=(2, 3))  # [B, F]

    def stages(self) -> list[list[nn.Module]]:
        layers, last = list(self.layers), len(self.layers)
        return [layers[first:end] for first, end in pairwise([*self._starts[:-1], last])]


class MobileNetV2(InvertedResidualNet):
    """MobileNetV2 of width 1.0; in_channels: C, 3 for colour, 1 for grey.

    >>> import torch
    >>> net = MobileNetV2().eval()
    >>> net(torch.zeros(2, 3, 48, 64)).shape, net.features
    (torch.Size([2, 1280]), 1280)
    """

    def __init__(self, *, in_channels: int = 3) -> None:
        super().__init__(NAME, STAGES, Layers(), in_channels)

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
    """Return the grouped name of an ungrouped one.

    A group has three layers: convolution, norm, activation.

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

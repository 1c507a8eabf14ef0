"""ResNet with the parameter names that published weights use.

The names (`conv1`, `bn1`, `layer1.0.conv1`, `layer1.0.downsample.0`, ...) are a file format: torchvision,
timm and most papers' checkpoints share them, so `weights.load_weights` needs no translation table. There is
no `fc`: see `heads` for what follows the pooled features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from maskcon._utils.errors import UsageError, unknown
from maskcon.models.base import Backbone

Stem = Literal["small", "imagenet", "stride2"]


@dataclass(frozen=True)
class Architecture:
    """Blocks per stage, and whether blocks are bottlenecks."""

    blocks: tuple[int, ...]
    bottleneck: bool = False


# The number in a name counts the weighted layers, the absent classifier included. Fewer stages mean fewer
# halvings too: behind the small stem, three leave an 8x8 map of a 32-pixel image, four leave 4x4.
ARCHITECTURES: dict[str, Architecture] = {
    "resnet6": Architecture((1, 1)),
    "resnet8": Architecture((1, 1, 1)),
    "resnet10": Architecture((1, 1, 1, 1)),
    "resnet14": Architecture((2, 2, 2)),
    "resnet18": Architecture((2, 2, 2, 2)),
    "resnet34": Architecture((3, 4, 6, 3)),
    "resnet50": Architecture((3, 4, 6, 3), bottleneck=True),
}


def _conv(in_channels: int, out_channels: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    # No bias: a normalisation, with its own shift, follows every convolution.
    return nn.Conv2d(in_channels, out_channels, kernel, stride, padding=kernel // 2, bias=False)


class Block(nn.Module):
    """Two 3x3 convolutions, or as a bottleneck 1x1 down, 3x3, 1x1 up; and a shortcut.

    The stride sits on the first 3x3, as in the published weights.
    """

    def __init__(self, in_channels: int, planes: int, stride: int, *, bottleneck: bool = False) -> None:
        super().__init__()
        self.bottleneck = bottleneck
        self.out_channels = planes * 4 if bottleneck else planes
        self.conv1 = _conv(in_channels, planes, 1) if bottleneck else _conv(in_channels, planes, 3, stride)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = _conv(planes, planes, 3, stride if bottleneck else 1)
        self.bn2 = nn.BatchNorm2d(planes)
        if bottleneck:
            self.conv3 = _conv(planes, self.out_channels, 1)
            self.bn3 = nn.BatchNorm2d(self.out_channels)
        self.downsample: nn.Sequential | None = None
        if stride != 1 or in_channels != self.out_channels:
            self.downsample = nn.Sequential(
                _conv(in_channels, self.out_channels, 1, stride), nn.BatchNorm2d(self.out_channels)
            )

    def forward(self, maps: Tensor) -> Tensor:
        shortcut: Tensor = maps if self.downsample is None else self.downsample(maps)
        inner: Tensor = self.bn2(self.conv2(torch.relu_(self.bn1(self.conv1(maps)))))
        if self.bottleneck:
            inner = self.bn3(self.conv3(torch.relu_(inner)))
        return torch.relu_(inner.add_(shortcut))


class ResNet(Backbone):
    """A ResNet without classifier: images [B, C, H, W] -> features [B, F].

    Args:
        name: one of `ARCHITECTURES`.
        in_channels: C; 3 for colour, 1 for grey.
        width: channels of the first stage; each further stage doubles them. Published weights need 64.
        stem: "imagenet" (7x7 stride 2, then a 3x3 max-pool stride 2), "small" (3x3 stride 1, for images up to
            about 64 pixels, as in the paper) or "stride2" (3x3 stride 2: a quarter of the work of "small").

    >>> net = ResNet("resnet18", stem="small")
    >>> net(torch.zeros(2, 3, 32, 32)).shape, net.features
    (torch.Size([2, 512]), 512)
    """

    def __init__(
        self,
        name: str,
        *,
        in_channels: int = 3,
        width: int = 64,
        stem: Stem = "imagenet",
    ) -> None:
        super().__init__()
        if name not in ARCHITECTURES:
            raise unknown("backbone", name, ARCHITECTURES)
        if stem not in get_args(Stem):
            raise unknown("stem", stem, get_args(Stem))
        if in_channels < 1:
            raise UsageError(f"{in_channels=} must be at least 1 (1 for grey, 3 for colour images)")
        if width < 1:
            raise UsageError(f"{width=} must be at least 1 (64 is the usual width, 16 to 32 suit a CPU)")
        architecture = ARCHITECTURES[name]
        self.name = name
        self.in_channels = in_channels
        self.width = width
        self.stem = stem

        kernel, stride = {"imagenet": (7, 2), "small": (3, 1), "stride2": (3, 2)}[stem]
        self.conv1 = _conv(in_channels, width, kernel, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1) if stem == "imagenet" else nn.Identity()

        channels = width
        self._stages: list[str] = []
        for index, count in enumerate(architecture.blocks):
            planes = width * 2**index
            blocks = nn.Sequential()
            for position in range(count):
                stride = 2 if index > 0 and position == 0 else 1
                block = Block(channels, planes, stride, bottleneck=architecture.bottleneck)
                blocks.append(block)
                channels = block.out_channels
            self._stages.append(f"layer{index + 1}")
            self.add_module(self._stages[-1], blocks)
        self.features = channels
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.maxpool(torch.relu_(self.bn1(self.conv1(images))))
        for stage in self._stages:
            maps = self.get_submodule(stage)(maps)
        return maps.mean(dim=(2, 3))  # [B, F]

    def stages(self) -> list[list[nn.Module]]:
        first = [self.conv1, self.bn1, nn.ReLU(inplace=True), self.maxpool]
        return [first, *([self.get_submodule(name)] for name in self._stages)]

"""EfficientNet-Lite (Google, 2020): no squeeze-and-excite, ReLU6 activations.

Published files name their layers `_conv_stem`, `_bn0`, `_blocks.0._depthwise_conv`, ..., `_conv_head`, `_bn1`, which
`translate` reads. Convolutions with a stride are padded as TensorFlow does, and BatchNorm has its epsilon of 1e-3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

from maskcon._utils.errors import unknown
from maskcon.models.mobilenet import InvertedResidualNet, Layers, Stage

LITE_STAGES = {
    "efficientnet_lite0": (
        Stage(1, 16, 1, 1),
        Stage(6, 24, 2, 2),
        Stage(6, 40, 2, 2, kernel=5),
        Stage(6, 80, 3, 2),
        Stage(6, 112, 3, 1, kernel=5),
        Stage(6, 192, 4, 2, kernel=5),
        Stage(6, 320, 1, 1),
    ),
    "efficientnet_lite2": (  # 1.1 times the channels, 1.2 times the blocks, but for stem, head and both ends
        Stage(1, 16, 1, 1),
        Stage(6, 24, 3, 2),
        Stage(6, 48, 3, 2, kernel=5),
        Stage(6, 88, 4, 2),
        Stage(6, 120, 4, 1, kernel=5),
        Stage(6, 208, 5, 2, kernel=5),
        Stage(6, 352, 1, 1),
    ),
}
LITE_LAYERS = Layers(same=True, epsilon=1e-3)

_LITE_BLOCK = re.compile(r"_blocks\.(\d+)\._(\w+)\.(\w+)")
# name in a published block -> in ours; the first block does not widen, so its other layers come one place earlier
_LITE_PLACES = {
    "expand_conv": "0.0",
    "bn0": "0.1",
    "depthwise_conv": "1.0",
    "bn1": "1.1",
    "project_conv": "2",
    "bn2": "3",
}
_LITE_FIRST = {"depthwise_conv": "0.0", "bn1": "0.1", "project_conv": "1", "bn2": "2"}


class EfficientNetLite(InvertedResidualNet):
    """EfficientNet-Lite without classifier: [B, C, H, W] -> features [B, 1280].

    Args:
        name: one of `LITE_STAGES`.
        in_channels: C; 3 for colour, 1 for grey.

    >>> import torch
    >>> net = EfficientNetLite("efficientnet_lite0").eval()
    >>> net(torch.zeros(2, 3, 48, 64)).shape, net.features
    (torch.Size([2, 1280]), 1280)
    """

    def __init__(self, name: str, *, in_channels: int = 3) -> None:
        if name not in LITE_STAGES:
            raise unknown("backbone", name, LITE_STAGES)
        super().__init__(name, LITE_STAGES[name], LITE_LAYERS, in_channels)

    def translate(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Rename the tensors of a published file to our names."""
        last = len(self.layers) - 1
        ends = {"_conv_stem.": "0.0.", "_bn0.": "0.1.", "_conv_head.": f"{last}.0.", "_bn1.": f"{last}.1."}
        return {_lite_name(name, ends): value for name, value in state.items()}


def _lite_name(name: str, ends: Mapping[str, str]) -> str:
    """Return our name of a published one.

    >>> _lite_name("_blocks.0._bn1.bias", {}), _lite_name("_blocks.3._bn2.bias", {})
    ('layers.1.conv.0.1.bias', 'layers.4.conv.3.bias')
    """
    if found := _LITE_BLOCK.fullmatch(name):
        places = _LITE_FIRST if found[1] == "0" else _LITE_PLACES
        if found[2] in places:
            return f"layers.{int(found[1]) + 1}.conv.{places[found[2]]}.{found[3]}"
    for theirs, ours in ends.items():
        if name.startswith(theirs):
            return f"layers.{ours}{name.removeprefix(theirs)}"
    return name

"""BatchNorm folded into the convolutions before it: the same function in evaluation mode, in fewer passes."""

from __future__ import annotations

import copy
from itertools import pairwise

import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from maskcon.models.base import Backbone
from maskcon.models.mobilenet import MobileNetV2
from maskcon.models.resnet import ResNet


def for_inference(backbone: Backbone) -> Backbone:
    """A copy that only computes features: evaluation mode, no gradients, channels-last, BatchNorm folded in.

    Nets that are not ours are copied without folding: nothing says which of their layers follow each other.
    """
    fused: Backbone = copy.deepcopy(backbone).eval().requires_grad_(False)
    if isinstance(backbone, ResNet | MobileNetV2):
        for module in list(fused.modules()):
            _fold_children(module)
    return fused.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def _fold_children(module: nn.Module) -> None:
    """In our nets a BatchNorm is registered right behind the convolution that it normalises."""
    for (conv_name, conv), (norm_name, norm) in pairwise(list(module.named_children())):
        if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
            setattr(module, conv_name, fuse_conv_bn_eval(conv, norm))
            setattr(module, norm_name, nn.Identity())

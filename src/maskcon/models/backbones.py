"""Backbones by name: ResNets, MobileNetV2, EfficientNet-Lite, and Hugging Face's."""

from __future__ import annotations

from typing import Literal, Self, get_args

from torch import nn

from maskcon._utils.errors import UsageError, unknown
from maskcon.config.backbones import HUGGING_FACE_PREFIX, PRETRAINED, on_hugging_face
from maskcon.models.base import Backbone
from maskcon.models.efficientnet_lite import LITE_STAGES, EfficientNetLite
from maskcon.models.mobilenet import NAME as MOBILENET
from maskcon.models.mobilenet import MobileNetV2
from maskcon.models.resnet import ARCHITECTURES, ResNet, Stem

StemChoice = Literal["auto", "small", "imagenet", "stride2"]

LARGEST_SMALL_IMAGE = 64  # pixels; above, a stem without stride costs sixteen times the ImageNet stem


def backbone_names() -> list[str]:
    """List the names of `build_backbone`, except `hf:NAME`."""
    return [*ARCHITECTURES, MOBILENET, *LITE_STAGES, *filter(on_hugging_face, PRETRAINED)]


def resolve_stem(stem: StemChoice, image_size: int) -> Stem:
    """Resolve "auto": the paper's 3x3 stem for small images, else the ImageNet stem.

    >>> resolve_stem("auto", 32), resolve_stem("auto", 224), resolve_stem("stride2", 32)
    ('small', 'imagenet', 'stride2')
    """
    if stem not in get_args(StemChoice):
        raise unknown("stem", stem, get_args(StemChoice))
    if stem == "auto":
        return "small" if image_size <= LARGEST_SMALL_IMAGE else "imagenet"
    return stem


def has_own_shape(name: str) -> bool:
    """Return whether the name alone defines the net: width and stem do not apply.

    >>> has_own_shape("mobilenet_v2"), has_own_shape("resnet18")
    (True, False)
    """
    return name == MOBILENET or name in LITE_STAGES or on_hugging_face(name)


def build_backbone(
    name: str,
    *,
    image_size: int,
    in_channels: int = 3,
    width: int = 64,
    stem: StemChoice = "auto",
    download: bool = False,
) -> Backbone:
    """Build a net with random weights, or load a pretrained Hugging Face model.

    Args:
        name: one of `backbone_names()`, or `hf:NAME` with NAME a model folder or hub name.
        image_size: H = W of the images.
        in_channels: 1 for grey, 3 for colour images.
        width, stem: see `ResNet`; ignored by the others, see `has_own_shape`.
        download: whether a Hugging Face model may be downloaded when it is not on this machine.

    >>> build_backbone("resnet10", image_size=32, in_channels=1, width=16).features
    128
    """
    if image_size < 1:
        raise UsageError(f"{image_size=} must be at least 1 pixel")
    if name == MOBILENET:
        return MobileNetV2(in_channels=in_channels)
    if name in LITE_STAGES:
        return EfficientNetLite(name, in_channels=in_channels)
    if on_hugging_face(name):
        # Imported here because `transformers` is an extra and slow to import.
        from maskcon.models.huggingface import load_hugging_face

        return load_hugging_face(name, image_size=image_size, in_channels=in_channels, download=download)
    if name not in ARCHITECTURES:
        raise unknown("backbone", name, [*backbone_names(), f"{HUGGING_FACE_PREFIX}NAME"])
    return ResNet(name, in_channels=in_channels, width=width, stem=resolve_stem(stem, image_size))


class FrozenBatchNorm2d(nn.BatchNorm2d):
    """BatchNorm that always uses its running statistics and never updates them."""

    def train(self, mode: bool = True) -> Self:  # noqa: ARG002 - the signature is nn.Module's
        return super().train(False)


def freeze_batchnorm(module: nn.Module) -> None:
    """Freeze the statistics of every BatchNorm2d, in place, also through `train()`.

    Scale and shift remain trainable, and the names in `state_dict()` do not change. For published weights and small
    batches; a net with random weights would have no normalisation.
    """
    for layer in module.modules():
        # Changing the class keeps every reference to the layer and to its parameters valid (optimisers, wrappers of
        # distributed training), which replacing the layer would not.
        if type(layer) is nn.BatchNorm2d:
            layer.__class__ = FrozenBatchNorm2d
            layer.eval()

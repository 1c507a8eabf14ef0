"""Pretrained backbones by name: where their weights come from, and how they read images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
HUGGING_FACE_PREFIX = "hf:"  # marks names of datasets and backbones on the Hugging Face hub

# frozen, first choice first, of those whose weights a package index has (docs/results.md)
FROZEN_BACKBONES = ("mobilenet_v2", "efficientnet_lite0", "efficientnet_lite2")
FROZEN_BACKBONE = FROZEN_BACKBONES[0]  # of freeze=yes, where no other is named

# pixels beyond those of the image still help (docs/results.md, photographs of 176 px at 224)
ENLARGED = 4 / 3


@dataclass(frozen=True)
class Pretrained:
    """A backbone with published weights.

    Attributes:
        megabytes: size of the download.
        repository: on the Hugging Face hub, where the model brings its own weights; "": `weights=imagenet`.
        mean, std: of the images that it was trained on, per channel, for values in 0..1.
        sizes: sides of a view that suit it, in pixels, smallest first.
        patch: the sides of its input are multiples of it; 0: as its library says.
        revision: of the repository, where its weights are in safetensors.
    """

    megabytes: int
    repository: str = ""
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    sizes: tuple[int, ...] = (128, 160, 224)  # larger views cost in proportion to their pixels
    patch: int = 0
    revision: str = "main"


_LITE_MEAN, _LITE_STD = (127 / 255,) * 3, (128 / 255,) * 3  # (x - 127) / 128 for values in 0..255
_HALF = (0.5, 0.5, 0.5)

PRETRAINED: Mapping[str, Pretrained] = {
    "resnet18": Pretrained(45),
    "resnet34": Pretrained(83),
    "resnet50": Pretrained(98),
    "mobilenet_v2": Pretrained(9),
    "efficientnet_lite0": Pretrained(19, mean=_LITE_MEAN, std=_LITE_STD, sizes=(160, 224)),
    "efficientnet_lite2": Pretrained(25, mean=_LITE_MEAN, std=_LITE_STD, sizes=(160, 224)),
    "dinov2_small": Pretrained(88, "facebook/dinov2-small", sizes=(224,), patch=14),
    "dinov3_small": Pretrained(86, "facebook/dinov3-vits16-pretrain-lvd1689m", sizes=(224,), patch=16),
    "siglip_base": Pretrained(813, "google/siglip-base-patch16-224", _HALF, _HALF, (224,)),
    "convnext_tiny": Pretrained(114, "facebook/convnext-tiny-224", sizes=(224,), revision="refs/pr/4"),
}


def published(backbone: str) -> Pretrained | None:
    """Return what is known of a backbone by its name, also as `hf:REPOSITORY`; None of any other.

    >>> published("hf:facebook/dinov2-small") == published("dinov2_small")
    True
    """
    repository = backbone.removeprefix(HUGGING_FACE_PREFIX)
    by_repository = (known for known in PRETRAINED.values() if repository and known.repository == repository)
    return PRETRAINED.get(backbone) or next(by_repository, None)


def on_hugging_face(backbone: str) -> bool:
    """Whether a Hugging Face model of this name brings its own weights.

    >>> on_hugging_face("hf:microsoft/resnet-18"), on_hugging_face("dinov2_small"), on_hugging_face("resnet18")
    (True, True, False)
    """
    known = PRETRAINED.get(backbone)
    return backbone.startswith(HUGGING_FACE_PREFIX) or (known is not None and known.repository != "")


def view_size(backbone: str, side: float) -> int:
    """Return the largest size of a view by a frozen backbone that enlarges images of this side by `ENLARGED` at most.

    At least the smallest size.

    >>> view_size("mobilenet_v2", 32), view_size("mobilenet_v2", 160), view_size("mobilenet_v2", 176)
    (128, 160, 224)
    """
    sizes = (published(backbone) or PRETRAINED[FROZEN_BACKBONE]).sizes
    return max((size for size in sizes if size <= ENLARGED * side), default=sizes[0])


def mean_and_std(backbone: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the mean and deviation per channel of what a backbone was trained on; ImageNet's where unknown."""
    known = published(backbone) or Pretrained(0)
    return known.mean, known.std

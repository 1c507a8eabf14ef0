"""Pretrained backbones by name: their weights, and how they take images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
HUGGING_FACE_PREFIX = "hf:"  # marks names of datasets and backbones on the Hugging Face hub

# for frozen runs, best first, of those whose weights are on the package index (docs/results.md)
FROZEN_BACKBONES = ("mobilenet_v2", "efficientnet_lite0", "efficientnet_lite2")
FROZEN_BACKBONE = FROZEN_BACKBONES[0]  # the default of freeze=yes

# views larger than the image still help (docs/results.md, photographs of 176 px at 224)
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
    """Return the entry of a backbone by name or `hf:REPOSITORY`; None if it has none.

    >>> published("hf:facebook/dinov2-small") == published("dinov2_small")
    True
    """
    repository = backbone.removeprefix(HUGGING_FACE_PREFIX)
    by_repository = (known for known in PRETRAINED.values() if repository and known.repository == repository)
    return PRETRAINED.get(backbone) or next(by_repository, None)


def on_hugging_face(backbone: str) -> bool:
    """Return whether this is a Hugging Face model, which brings its own weights.

    >>> on_hugging_face("hf:microsoft/resnet-18"), on_hugging_face("dinov2_small"), on_hugging_face("resnet18")
    (True, True, False)
    """
    known = PRETRAINED.get(backbone)
    return backbone.startswith(HUGGING_FACE_PREFIX) or (known is not None and known.repository != "")


def view_size(backbone: str, side: float) -> int:
    """Return the size of a frozen backbone's views for images of this side.

    It is the largest that enlarges images by `ENLARGED` at most, or else the smallest.

    >>> view_size("mobilenet_v2", 32), view_size("mobilenet_v2", 160), view_size("mobilenet_v2", 176)
    (128, 160, 224)
    """
    sizes = (published(backbone) or PRETRAINED[FROZEN_BACKBONE]).sizes
    return max((size for size in sizes if size <= ENLARGED * side), default=sizes[0])


def mean_and_std(backbone: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and deviation per channel of a backbone's training images.

    ImageNet's if they are unknown.
    """
    known = published(backbone) or Pretrained(0)
    return known.mean, known.std

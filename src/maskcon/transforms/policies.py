"""View policies by name, and the pairs (key view, query view) that training uses.

To add or tune one, edit `POLICIES`: everything a policy does is in its line there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from maskcon._utils.errors import UsageError, unknown
from maskcon.transforms.autoaugment import AutoAugment
from maskcon.transforms.jitter import ColourJitter, GaussianBlur, Greyscale, RandomErasing, ToneJitter
from maskcon.transforms.operations import Affine, Operation, Perspective
from maskcon.transforms.resample import CentreSquare, Crop, RandomCrop, WholeImage, resample


@runtime_checkable
class Policy(Protocol):
    """Interface of a policy; a class with these three members can be used in a run.

    A policy is a pure function of images and uniforms: the same row of both gives the same view, in any batch, on
    any rank.
    """

    @property
    def name(self) -> str: ...

    @property
    def draws(self) -> int:
        """Uniforms per sample."""
        ...

    def __call__(self, images: Tensor, uniforms: Tensor, *, size: int, sizes: Tensor | None = None) -> Tensor:
        """Make views, float32 [B, C, size, size] in [0, 1].

        images: [B, C, H, W]; uniforms: [B, draws] in [0, 1); sizes: see `ViewPolicy`.

        Training passes uniforms and sizes on the CPU, whatever the device of the images.
        """
        ...


@dataclass(frozen=True)
class ViewPolicy:
    """Crop, mirror, then operations: all geometry in one resample, then colour.

    images: uint8, or float in [0, 1], [B, C, H, W] with C 1 or 3. uniforms: float32 [B, draws] in [0, 1).
    sizes: int [B, 2], the valid (height, width) of each image in the top-left of its canvas; None: all of it.
    Returns float32 [B, C, size, size] in [0, 1], not normalised, on the device of the images.

    >>> view = policy("cifar-weak")
    >>> images = torch.zeros(4, 3, 32, 32, dtype=torch.uint8)
    >>> view(images, torch.rand(4, view.draws), size=32).shape
    torch.Size([4, 3, 32, 32])
    """

    name: str
    crop: Crop
    mirror: float = 0.0  # probability
    operations: tuple[Operation, ...] = ()

    def __post_init__(self) -> None:
        if sum(operation.warps for operation in self.operations) > 1:
            raise UsageError(f"view policy {self.name!r} has more than one warping operation; keep one")

    @property
    def draws(self) -> int:
        return self.crop.draws + (self.mirror > 0) + sum(operation.draws for operation in self.operations)

    @property
    def rotation(self) -> float:
        """Largest rotation of the views to either side, in degrees."""
        return max((op.rotation for op in self.operations if isinstance(op, Affine)), default=0.0)

    def __call__(self, images: Tensor, uniforms: Tensor, *, size: int, sizes: Tensor | None = None) -> Tensor:
        heights, widths = check_images(images, size, sizes)
        if uniforms.shape != (images.shape[0], self.draws) or uniforms.dtype != torch.float32:
            raise UsageError(
                f"view policy {self.name!r} needs uniforms of shape {(images.shape[0], self.draws)} in float32, "
                f"got {tuple(uniforms.shape)} in {uniforms.dtype}"
            )
        each = [self.crop.draws, int(self.mirror > 0), *(operation.draws for operation in self.operations)]
        # on the CPU: rows are grouped by what is drawn, which must not wait for the device
        crop, mirror, *shares = torch.split(uniforms.cpu(), each, dim=1)
        mirrored = mirror[:, 0] < self.mirror if self.mirror > 0 else None
        warps = (
            operation.warp(share, size) for operation, share in zip(self.operations, shares, strict=True)
        )
        warp = next((warp for warp in warps if warp is not None), None)  # of the one operation that warps
        placement = self.crop(heights, widths, size, crop)
        views = resample(on_byte_scale(images), placement, mirrored, warp, size=size)
        for operation, share in zip(self.operations, shares, strict=True):
            views = operation.recolour(views, share)
        return views.mul_(1 / 255).clamp_(0.0, 1.0)


def check_images(images: Tensor, size: int, sizes: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return valid heights and widths [B], on the CPU; raise for invalid shapes."""
    if images.ndim != 4 or images.shape[1] not in (1, 3) or 0 in images.shape[2:]:
        raise UsageError(f"images must be [B, 1 or 3, H, W] with pixels, got {tuple(images.shape)}")
    if images.dtype != torch.uint8 and not images.dtype.is_floating_point:
        raise UsageError(f"images must be uint8 or float in [0, 1], got {images.dtype}")
    if size < 1:
        raise UsageError(f"view {size=} must be at least 1 pixel")
    batch, _, height, width = images.shape
    if sizes is None:
        full = torch.tensor([height, width]).expand(batch, 2)
        return full[:, 0], full[:, 1]
    if sizes.shape != (batch, 2):
        raise UsageError(f"sizes must be [{batch}, 2] (height, width), got {tuple(sizes.shape)}")
    sizes = sizes.cpu()
    wrong = ((sizes < 1) | (sizes > torch.tensor([height, width]))).any(dim=1)
    if bool(wrong.any()):
        raise UsageError(
            f"sizes must lie between 1 and the canvas {height} x {width}, got {sizes[wrong][0].tolist()}"
        )
    return sizes[:, 0], sizes[:, 1]


def on_byte_scale(images: Tensor) -> Tensor:
    """Scale float images from [0, 1] to 0..255; keep uint8, which is converted later."""
    return images if images.dtype == torch.uint8 else images.float() * 255


def normalise(views: Tensor, mean: Tensor | Sequence[float], std: Tensor | Sequence[float]) -> Tensor:
    """Return (views - mean) / std per channel.

    views: [B, C, S, S]; mean, std: C values each.

    >>> normalise(torch.ones(1, 3, 2, 2), [0.5, 0.5, 0.5], [0.5, 0.25, 0.5])[0, :, 0, 0]
    tensor([1., 2., 1.])
    """
    centre, spread = (
        torch.as_tensor(v, dtype=views.dtype, device=views.device).flatten() for v in (mean, std)
    )
    channels = views.shape[1]
    if centre.shape[0] != channels or spread.shape[0] != channels:
        raise UsageError(f"{channels} channels need as many values: {mean=}, {std=}")
    return (views - centre.view(1, -1, 1, 1)) / spread.view(1, -1, 1, 1)


TEST_CROPS: dict[str, CentreSquare | WholeImage] = {"shorter": CentreSquare(), "both": WholeImage()}


def test_view(  # part of the interface, not a test
    images: Tensor,
    *,
    size: int,
    sizes: Tensor | None = None,  # noqa: PT028
    resize: str = "shorter",  # noqa: PT028
) -> Tensor:
    """Return the deterministic view of test images; shapes and scale as for a policy.

    resize: "shorter" resizes the shorter side to `size` and crops the central square (the paper's text);
    "both" stretches both sides to `size`, which changes the aspect (the reference code).
    """
    heights, widths = check_images(images, size, sizes)
    if resize not in TEST_CROPS:
        raise unknown("test resize", resize, TEST_CROPS)
    placement = TEST_CROPS[resize](heights, widths, size)
    return resample(on_byte_scale(images), placement, None, None, size=size).mul_(1 / 255).clamp_(0.0, 1.0)


test_view.__test__ = False  # type: ignore[attr-defined]  # its name looks like a test to pytest

_CROP = RandomCrop(scale=(0.2, 1.0))
# DEVIATES: the paper's weak view mirrors after the perspective, its strong view before; both here mirror first.
# Corners are drawn alike on both sides, so the two orders have the same distribution but for half a pixel.
_PRODUCT = (Perspective(distortion=0.5, probability=0.5),)
_PHOTO_COLOURS = (
    ColourJitter(0.4, 0.4, 0.4, 0.1, probability=0.8),
    Greyscale(0.2),
    GaussianBlur((0.1, 2.0), 0.5),
)
_GREY_WEAK = (Affine(rotation=15, area=(0.75, 1.38), shift=0.06),)  # scale .85 to 1.15
_GREY_STRONG = (
    Affine(rotation=30, area=(0.5, 1.2), shift=0.08),
    ToneJitter(brightness=0.3, contrast=(0.5, 1.5), gamma=(0.6, 1.6)),
    RandomErasing(probability=0.25),
)

POLICIES: dict[str, ViewPolicy] = {
    view.name: view
    for view in (
        ViewPolicy("identity", CentreSquare()),
        ViewPolicy("cifar-weak", _CROP, mirror=0.5),
        ViewPolicy("cifar-strong", _CROP, mirror=0.5, operations=(AutoAugment(),)),
        ViewPolicy("products-weak", _CROP, mirror=0.5, operations=_PRODUCT),
        ViewPolicy("products-strong", _CROP, mirror=0.5, operations=_PRODUCT),
        ViewPolicy("cars-weak", _CROP, mirror=0.5, operations=_PRODUCT),
        ViewPolicy("cars-strong", _CROP, mirror=0.5, operations=_PRODUCT + _PHOTO_COLOURS),
        ViewPolicy("photos-weak", _CROP, mirror=0.5),
        ViewPolicy("photos-strong", _CROP, mirror=0.5, operations=_PHOTO_COLOURS),
        ViewPolicy("embedded-weak", WholeImage(), mirror=0.5, operations=_GREY_WEAK),
        ViewPolicy("embedded-strong", WholeImage(), mirror=0.5, operations=_GREY_STRONG),
        # for digits and letters, which must not be mirrored
        ViewPolicy("signs-weak", WholeImage(), operations=_GREY_WEAK),
        ViewPolicy("signs-strong", WholeImage(), operations=_GREY_STRONG),
    )
}
STRENGTHS = ("weak", "strong")  # the order of a `pair`
FAMILIES = ("cifar", "products", "cars", "photos", "embedded", "signs")


def policy(name: str) -> Policy:
    """Return the policy of this name."""
    if name not in POLICIES:
        raise unknown("view policy", name, POLICIES)
    return POLICIES[name]


def name_for(name: str, family: str) -> str:
    """Resolve `weak` and `strong` to policies of a family; other names are unchanged.

    >>> name_for("weak", "cifar"), name_for("identity", "cifar")
    ('cifar-weak', 'identity')
    """
    if name in STRENGTHS:
        return pair(family)[STRENGTHS.index(name)].name
    if name not in POLICIES:
        raise unknown("view policy", name, [*STRENGTHS, *POLICIES])
    return name


def pair(name: str) -> tuple[Policy, Policy]:
    """Return (weak, strong), the key and query policy of a family of datasets.

    >>> [view.name for view in pair("cifar")]
    ['cifar-weak', 'cifar-strong']
    """
    if name not in FAMILIES:
        raise unknown("view family", name, FAMILIES)
    return POLICIES[f"{name}-weak"], POLICIES[f"{name}-strong"]

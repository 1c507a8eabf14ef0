"""The package's view policies for one image at a time, with PIL alone: the baseline of `views_per_core`.

Written for speed as far as PIL goes: crop and resize are one call, the table of choices is looked up beforehand, and an
image becomes an array once, at the end. Choices come from the same rows of uniforms that the package's policies read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

from maskcon.transforms.autoaugment import CIFAR10_TABLE, UNSIGNED, magnitude
from maskcon.transforms.boxes import CROP_ATTEMPTS, RandomCrop
from maskcon.transforms.jitter import ORDERS, ColourJitter, GaussianBlur, Greyscale

BILINEAR, NEAREST = Image.Resampling.BILINEAR, Image.Resampling.NEAREST
MIRROR = Image.Transpose.FLIP_LEFT_RIGHT
AFFINE = Image.Transform.AFFINE
GREY = (128, 128, 128)  # what geometry uncovers
CROP_DRAWS = 2 * CROP_ATTEMPTS + 2

Picture = Image.Image
Draws = Sequence[float]  # of one image

_CROP, _JITTER, _GREYSCALE, _BLUR = RandomCrop(), ColourJitter(), Greyscale(), GaussianBlur()
_LOW, _HIGH = (math.log(side) for side in _CROP.ratio)
# name, probability and magnitude of each operation, and whether a sign is drawn
_TABLE = [
    [(name, chance, magnitude(name, index), name not in UNSIGNED) for name, chance, index in pair]
    for pair in CIFAR10_TABLE
]


def cropped(image: Picture, draws: Draws, size: int) -> Picture:
    """RandomResizedCrop and a mirror, from the first 23 draws."""
    width, height = image.size
    for attempt in range(CROP_ATTEMPTS):
        share = _CROP.scale[0] + draws[2 * attempt] * (_CROP.scale[1] - _CROP.scale[0])
        aspect = math.exp(_LOW + draws[2 * attempt + 1] * (_HIGH - _LOW))
        area = height * width * share
        box_width, box_height = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < box_width <= width and 0 < box_height <= height:
            top = int(draws[CROP_DRAWS - 2] * (height - box_height + 1))
            left = int(draws[CROP_DRAWS - 1] * (width - box_width + 1))
            break
    else:
        ratio = width / height
        box_height = round(width / _CROP.ratio[0]) if ratio < _CROP.ratio[0] else height
        box_width = round(height * _CROP.ratio[1]) if ratio > _CROP.ratio[1] else width
        top, left = (height - box_height) // 2, (width - box_width) // 2
    view = image.resize((size, size), BILINEAR, box=(left, top, left + box_width, top + box_height))
    return view.transpose(MIRROR) if draws[CROP_DRAWS] < 0.5 else view


def augmented(image: Picture, name: str, amount: float) -> Picture:
    """One operation of AutoAugment's table at a signed magnitude."""
    match name:
        case "rotate":
            return image.rotate(amount, BILINEAR, fillcolor=GREY)
        case "shear_x":
            return image.transform(image.size, AFFINE, (1, amount, 0, 0, 1, 0), BILINEAR, fillcolor=GREY)
        case "shear_y":
            return image.transform(image.size, AFFINE, (1, 0, 0, amount, 1, 0), BILINEAR, fillcolor=GREY)
        case "translate_x":
            shift = math.floor(amount * image.size[0] + 0.5)
            return image.transform(image.size, AFFINE, (1, 0, shift, 0, 1, 0), NEAREST, fillcolor=GREY)
        case "translate_y":
            shift = math.floor(amount * image.size[1] + 0.5)
            return image.transform(image.size, AFFINE, (1, 0, 0, 0, 1, shift), NEAREST, fillcolor=GREY)
        case "autocontrast":
            return ImageOps.autocontrast(image)
        case "equalize":
            return ImageOps.equalize(image)
        case "invert":
            return ImageOps.invert(image)
        case "posterize":
            return ImageOps.posterize(image, int(amount))
        case "solarize":
            return ImageOps.solarize(image, amount)  # type: ignore[arg-type]  # a fraction compares as well
        case "color":
            return ImageEnhance.Color(image).enhance(1 + amount)
        case "brightness":
            return ImageEnhance.Brightness(image).enhance(1 + amount)
        case "contrast":
            return ImageEnhance.Contrast(image).enhance(1 + amount)
        case _:
            return ImageEnhance.Sharpness(image).enhance(1 + amount)


def autoaugmented(image: Picture, draws: Draws) -> Picture:
    """The sub-policy that five draws choose: which, whether each of its operations, their signs."""
    for turn, (name, chance, amount, signed) in enumerate(_TABLE[int(draws[0] * len(_TABLE))]):
        if draws[1 + turn] < chance:
            image = augmented(image, name, -amount if signed and draws[3 + turn] < 0.5 else amount)
    return image


def hue_shifted(image: Picture, turn: float) -> Picture:
    """Hue moved by a share of the circle, in PIL's 8-bit HSV."""
    hue, saturation, value = image.convert("HSV").split()
    offset = round(turn * 255) % 256
    return Image.merge(
        "HSV", (hue.point([(level + offset) % 256 for level in range(256)]), saturation, value)
    ).convert("RGB")


def recoloured(image: Picture, draws: Draws) -> Picture:
    """Jitter in a drawn order, grey, blur: the colours of the strong view of photographs, from nine draws."""
    if draws[0] < _JITTER.probability:
        factors = [
            max(0.0, 1 - x) + draw * (1 + x - max(0.0, 1 - x))
            for x, draw in zip(
                (_JITTER.brightness, _JITTER.contrast, _JITTER.saturation), draws[2:5], strict=True
            )
        ]
        for operation in ORDERS[int(draws[1] * len(ORDERS))]:
            if operation == 3:
                image = hue_shifted(image, (2 * draws[5] - 1) * _JITTER.hue)
            else:
                kind = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)[operation]
                image = kind(image).enhance(factors[operation])
    if draws[6] < _GREYSCALE.probability:
        image = image.convert("L").convert("RGB")
    if draws[7] < _BLUR.probability:
        low, high = _BLUR.sigma
        image = image.filter(ImageFilter.GaussianBlur(low + draws[8] * (high - low)))
    return image


def cifar_strong(image: Picture, draws: Draws, size: int) -> Picture:
    return autoaugmented(cropped(image, draws, size), draws[CROP_DRAWS + 1 :])


def photos_strong(image: Picture, draws: Draws, size: int) -> Picture:
    return recoloured(cropped(image, draws, size), draws[CROP_DRAWS + 1 :])


# Weak and strong policy of a family, as `maskcon.transforms.pair` has them.
PAIRS: dict[str, tuple[Callable[[Picture, Draws, int], Picture], ...]] = {
    "cifar": (cropped, cifar_strong),
    "photos": (cropped, photos_strong),
}


def made_of(
    images: NDArray[np.uint8], policy: Callable[[Picture, Draws, int], Picture], table: list[Draws], size: int
) -> NDArray[np.float32]:
    """Views of images ``[N, H, W, 3]``, uint8: float32 ``[N, 3, size, size]`` in 0..1."""
    views = np.empty((len(images), size, size, 3), dtype=np.uint8)
    for row, draws in enumerate(table):
        views[row] = np.asarray(policy(Image.fromarray(images[row]), draws, size))
    return np.ascontiguousarray(views.transpose(0, 3, 1, 2), dtype=np.float32) / np.float32(255)

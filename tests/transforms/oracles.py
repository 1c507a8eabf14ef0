"""Slow, obvious versions of the views: one image at a time, with PIL and plain loops, from the same row of uniforms."""

from __future__ import annotations

import math

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from maskcon.transforms.autoaugment import CIFAR10_TABLE


def to_pil(image: Tensor) -> Image.Image:
    """uint8 [C, H, W] -> PIL."""
    array = image.numpy()
    return Image.fromarray(
        array[0] if array.shape[0] == 1 else np.ascontiguousarray(array.transpose(1, 2, 0))
    )


def from_pil(image: Image.Image) -> Tensor:
    """PIL -> float [C, H, W] on 0..255."""
    array = np.array(image)
    return torch.from_numpy(array[None] if array.ndim == 2 else array.transpose(2, 0, 1).copy()).float()


def smooth_images(batch: int, channels: int, height: int, width: int, seed: int = 0) -> Tensor:
    """Images with gradients, edges and some noise, uint8."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(batch, channels, 5, 5, generator=generator)
    images = torch.nn.functional.interpolate(coarse, (height, width), mode="bilinear", align_corners=True)
    images = images * 230 + 25 * torch.rand(batch, channels, height, width, generator=generator)
    return images.round().clamp(0, 255).to(torch.uint8)


def crop_box(
    uniforms: list[float], height: int, width: int, scale: tuple[float, float], ratio: tuple[float, float]
) -> tuple[int, int, int, int]:
    """(top, left, height, width) of RandomResizedCrop, written as its documentation tells it."""
    for attempt in range(10):
        area = height * width * (scale[0] + uniforms[2 * attempt] * (scale[1] - scale[0]))
        low, high = math.log(ratio[0]), math.log(ratio[1])
        aspect = math.exp(low + uniforms[2 * attempt + 1] * (high - low))
        box_width, box_height = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < box_width <= width and 0 < box_height <= height:
            top = int(uniforms[20] * (height - box_height + 1))
            left = int(uniforms[21] * (width - box_width + 1))
            return top, left, box_height, box_width
    box_height, box_width = height, width
    if width / height < ratio[0]:
        box_height = max(1, round(width / ratio[0]))
    elif width / height > ratio[1]:
        box_width = max(1, round(height * ratio[1]))
    return (height - box_height) // 2, (width - box_width) // 2, box_height, box_width


def cropped(image: Image.Image, box: tuple[int, int, int, int], mirrored: bool, size: int) -> Image.Image:
    """Crop, resize with PIL's bilinear filter, mirror."""
    top, left, height, width = box
    view = image.crop((left, top, left + width, top + height)).resize((size, size), Image.Resampling.BILINEAR)
    return view.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if mirrored else view


def crop_and_mirror(image: Tensor, row: Tensor, size: int) -> Image.Image:
    """The weak CIFAR view of one image uint8 [C, H, W], from the first 23 uniforms of its row."""
    values = row.double().tolist()
    box = crop_box(values[:22], image.shape[1], image.shape[2], (0.2, 1.0), (3 / 4, 4 / 3))
    return cropped(to_pil(image), box, values[22] < 0.5, size)


LINEAR = {
    "color": ImageEnhance.Color,
    "brightness": ImageEnhance.Brightness,
    "contrast": ImageEnhance.Contrast,
    "sharpness": ImageEnhance.Sharpness,
}


def magnitude(name: str, index: int) -> float:
    """The ten steps of each operation, written out by its range."""
    if name in ("shear_x", "shear_y"):
        return float(np.linspace(0, 0.3, 10)[index])
    if name in ("translate_x", "translate_y"):
        return float(np.linspace(0, 150 / 331, 10)[index])
    if name == "rotate":
        return float(np.linspace(0, 30, 10)[index])
    if name == "posterize":
        return int(np.round(np.linspace(8, 4, 10))[index])
    if name == "solarize":
        return float(np.linspace(256, 0, 10)[index])
    return float(np.linspace(0, 0.9, 10)[index])


def apply_operation(image: Image.Image, name: str, amount: float, sign: int) -> Image.Image:
    """One AutoAugment operation with PIL, geometry bilinear, margin 128."""
    fill = 128 if image.mode == "L" else (128, 128, 128)
    if name == "rotate":
        return image.rotate(amount, Image.Resampling.BILINEAR, fillcolor=fill)
    if name in LINEAR:
        return LINEAR[name](image).enhance(1 + amount * sign)
    if name == "posterize":
        return ImageOps.posterize(image, int(amount))
    if name == "solarize":
        return ImageOps.solarize(image, amount)
    if name in ("autocontrast", "equalize", "invert"):
        return getattr(ImageOps, name)(image)
    coefficients = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]
    kind = Image.Resampling.BILINEAR
    if name == "shear_x":
        coefficients[1] = amount * sign
    elif name == "shear_y":
        coefficients[3] = amount * sign
    else:
        coefficients[2 if name == "translate_x" else 5] = amount * image.size[0] * sign
        kind = Image.Resampling.NEAREST
    return image.transform(image.size, Image.Transform.AFFINE, coefficients, kind, fillcolor=fill)


def autoaugment_steps(row: Tensor) -> list[tuple[str, float, int]]:
    """(name, magnitude, sign) of the operations that a row of five uniforms asks for."""
    values = row.double().tolist()
    steps = []
    for turn, (name, probability, index) in enumerate(CIFAR10_TABLE[int(values[0] * 25)]):
        if row[1 + turn] < torch.tensor(probability):
            steps.append((name, magnitude(name, index), -1 if values[3 + turn] < 0.5 else 1))
    return steps

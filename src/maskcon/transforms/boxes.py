"""Crop boxes in pixels of the stored image, drawn from a table of uniforms.

All functions work on tensors of shape [B], in float64: boxes are rounded to whole pixels, and a row must round alike in
every batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

CROP_ATTEMPTS = 10


def wide(values: Tensor) -> Tensor:
    """Convert to float64, or to float32 on MPS, which has no float64."""
    return values.to(torch.float32 if values.device.type == "mps" else torch.float64)


@dataclass(frozen=True)
class Placement:
    """The part of each image that fills the view; all fields [B], in pixels, y down.

    The view shows the box (top, left, height, width). Filter taps never reach outside the rows [row_low, row_high)
    and columns [column_low, column_high): for a crop these are the box itself, because a crop is cut out before it
    is resized.
    """

    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor
    row_low: Tensor
    row_high: Tensor
    column_low: Tensor
    column_high: Tensor

    def rows(self, index: Tensor) -> Placement:
        """Return the placements of some rows."""
        return Placement(*(getattr(self, name)[index] for name in self.__dataclass_fields__))


def box_placement(top: Tensor, left: Tensor, height: Tensor, width: Tensor) -> Placement:
    """Place a crop: nothing outside the box is visible."""
    return Placement(top, left, height, width, top, top + height, left, left + width)


@dataclass(frozen=True)
class RandomCrop:
    """The box of torchvision's RandomResizedCrop.

    Ten attempts draw an area share from `scale` and an aspect ratio, uniform in its logarithm, from `ratio`; the first
    box that fits is put at a uniform position. If none fits, the central box of the nearest allowed ratio is used.
    Uniforms per sample: an area and a ratio for each attempt, then the vertical and the horizontal position.
    """

    scale: tuple[float, float] = (0.2, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    @property
    def draws(self) -> int:
        return 2 * CROP_ATTEMPTS + 2

    def __call__(self, heights: Tensor, widths: Tensor, size: int, uniforms: Tensor) -> Placement:  # noqa: ARG002
        """Return whole-pixel boxes: heights, widths [B]; uniforms [B, draws]."""
        heights, widths, uniforms = wide(heights), wide(widths), wide(uniforms)
        share = uniforms[:, 0 : 2 * CROP_ATTEMPTS : 2]  # [B, attempts]
        tilt = uniforms[:, 1 : 2 * CROP_ATTEMPTS : 2]
        area = (heights * widths).unsqueeze(1) * (self.scale[0] + share * (self.scale[1] - self.scale[0]))
        low, high = math.log(self.ratio[0]), math.log(self.ratio[1])
        ratio = torch.exp(low + tilt * (high - low))
        tried_widths = torch.round(torch.sqrt(area * ratio))
        tried_heights = torch.round(torch.sqrt(area / ratio))
        fits = (tried_widths > 0) & (tried_widths <= widths.unsqueeze(1))
        fits &= (tried_heights > 0) & (tried_heights <= heights.unsqueeze(1))
        first = fits.to(torch.uint8).argmax(dim=1, keepdim=True)  # first attempt that fits, or 0
        found = fits.gather(1, first).squeeze(1)
        height = tried_heights.gather(1, first).squeeze(1)
        width = tried_widths.gather(1, first).squeeze(1)
        top = torch.floor(uniforms[:, -2] * (heights - height + 1))
        left = torch.floor(uniforms[:, -1] * (widths - width + 1))
        last_height, last_width = self._fallback(heights, widths)
        return box_placement(
            torch.where(found, top, torch.floor((heights - last_height) / 2)),
            torch.where(found, left, torch.floor((widths - last_width) / 2)),
            torch.where(found, height, last_height),
            torch.where(found, width, last_width),
        )

    def _fallback(self, heights: Tensor, widths: Tensor) -> tuple[Tensor, Tensor]:
        """Height and width of the largest box whose ratio is allowed."""
        ratio = widths / heights
        height = torch.where(ratio < self.ratio[0], torch.round(widths / self.ratio[0]), heights)
        width = torch.where(ratio > self.ratio[1], torch.round(heights * self.ratio[1]), widths)
        return height.clamp_min(1), width.clamp_min(1)


@dataclass(frozen=True)
class WholeImage:
    """No crop: all of the image, stretched to the square of the view."""

    draws: int = 0

    def __call__(self, heights: Tensor, widths: Tensor, _size: int, _: Tensor | None = None) -> Placement:
        zero = torch.zeros_like(wide(heights))
        return box_placement(zero, zero, wide(heights), wide(widths))


@dataclass(frozen=True)
class CentreSquare:
    """No random crop: the central square after the shorter side is resized to the size of the view.

    Filter taps may reach outside the box, because the resize comes before the crop.
    """

    draws: int = 0

    def __call__(self, heights: Tensor, widths: Tensor, size: int, _: Tensor | None = None) -> Placement:
        heights, widths = wide(heights), wide(widths)
        zero, shorter = torch.zeros_like(heights), torch.minimum(heights, widths)
        offsets, lengths = [], []
        for side in (heights, widths):
            resized = torch.floor(side * size / shorter)  # length after the resize, in whole pixels
            scale = side / resized
            offsets.append(torch.round((resized - size) / 2) * scale)
            lengths.append(size * scale)
        return Placement(offsets[0], offsets[1], lengths[0], lengths[1], zero, heights, zero, widths)


Crop = RandomCrop | WholeImage | CentreSquare

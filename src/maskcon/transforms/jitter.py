"""Random changes of colours and grey levels: jitter, grey, blur, gamma, erasing.

Views are float [B, C, S, S] on 0..255.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from maskcon.transforms.operations import Operation, RandomOperation, between
from maskcon.transforms.resample import moved, separable, wide

ORDERS = tuple(itertools.permutations(range(4)))  # all orders of brightness, contrast, saturation, hue
BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)


def grey(views: Tensor) -> Tensor:
    """Compute luma with the ITU-R 601 weights: [B, 3, S, T] -> [B, 1, S, T]."""
    red, green, blue = views.unbind(1)
    return (red * 0.299 + green * 0.587 + blue * 0.114).unsqueeze(1)


def blend(base: Tensor | float, views: Tensor, factors: Tensor) -> Tensor:
    """Compute base + factor * (views - base), clipped to 0..255; factors [B]."""
    return ((views - base) * factors.float().view(-1, 1, 1, 1) + base).clamp_(0.0, 255.0)


def shift_hue(views: Tensor, turns: Tensor) -> Tensor:
    """Rotate the hue of views [B, 3, S, T] by turns [B] of the circle."""
    red, green, blue = views.unbind(1)
    value = views.amax(dim=1)
    chroma = value - views.amin(dim=1)
    safe = torch.where(chroma == 0, torch.ones_like(chroma), chroma)
    sector = torch.where(
        value == red,
        (green - blue) / safe,
        torch.where(value == green, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )  # -1..5, in sixths of the circle
    sector = sector + 6 * turns.float().view(-1, 1, 1)
    # Each channel is value minus chroma times a trapezoid of the hue; the three trapezoids lie 120 degrees apart.
    channels = []
    for offset in (5.0, 3.0, 1.0):
        place = torch.remainder(sector + offset, 6.0)
        channels.append(value - chroma * torch.minimum(place, 4 - place).clamp_(0.0, 1.0))
    return torch.stack(channels, dim=1)


@dataclass(frozen=True)
class ColourJitter(RandomOperation):
    """torchvision's ColorJitter, with a probability; the order is random per sample.

    Factors of brightness, contrast and saturation lie in [max(0, 1 - x), 1 + x), the hue shift in [-x, x) of the
    circle. Grey images only change brightness and contrast.
    Uniforms: whether it is applied, the order, then the four amounts.
    """

    # DEVIATES: values stay fractions between the steps, where the paper's code rounds to 8 bits after each. This also
    # holds for the blur and the greyscale below; the differences are a level or two.

    draws: ClassVar[int] = 6

    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.4
    hue: float = 0.1
    probability: float = 0.8

    def amounts(self, uniforms: Tensor) -> Tensor:
        """Compute the four amounts from the last four uniforms: [B, 4]."""
        ranges = [(max(0.0, 1 - x), 1 + x) for x in (self.brightness, self.contrast, self.saturation)]
        ranges.append((-self.hue, self.hue))
        return torch.stack(
            [between(uniforms[:, 2 + i], low, high) for i, (low, high) in enumerate(ranges)], dim=1
        )

    def order(self, uniforms: Tensor) -> Tensor:
        """Return the changes in the order drawn by the second uniform: [B, 4], CPU."""
        return torch.tensor(ORDERS)[(wide(uniforms[:, 1]) * len(ORDERS)).long()]

    def change(self, views: Tensor, uniforms: Tensor) -> Tensor:
        amounts = moved(self.amounts(uniforms), views.device)
        order = self.order(uniforms)  # on the CPU: grouping rows does not wait for the device
        for turn, operation in itertools.product(range(4), range(4)):
            rows = (order[:, turn] == operation).nonzero().squeeze(1).to(views.device)
            if len(rows):
                views[rows] = _jittered(operation, views[rows], amounts[rows, operation])
        return views


def _jittered(operation: int, views: Tensor, amounts: Tensor) -> Tensor:
    if operation == BRIGHTNESS:
        return blend(0.0, views, amounts)
    if operation == CONTRAST:
        luma = views if views.shape[1] == 1 else grey(views)
        return blend(luma.mean(dim=(1, 2, 3), keepdim=True), views, amounts)
    if views.shape[1] == 1:
        return views
    return blend(grey(views), views, amounts) if operation == SATURATION else shift_hue(views, amounts)


@dataclass(frozen=True)
class Greyscale(RandomOperation):
    """Replace all three channels by the luma, with a probability.

    Uniforms: whether it is applied.
    """

    draws: ClassVar[int] = 1

    probability: float = 0.2

    def change(self, views: Tensor, uniforms: Tensor) -> Tensor:  # noqa: ARG002
        return views if views.shape[1] == 1 else grey(views).expand(-1, 3, -1, -1)


@dataclass(frozen=True)
class GaussianBlur(RandomOperation):
    """PIL's GaussianBlur(radius=sigma): three box blurs with a fractional radius.

    Uniforms: whether it is applied, sigma.
    """

    draws: ClassVar[int] = 2

    sigma: tuple[float, float] = (0.1, 2.0)
    probability: float = 0.5

    def sigmas(self, uniforms: Tensor) -> Tensor:
        """Compute sigma from the second uniform: [B]."""
        return between(uniforms[:, 1], *self.sigma)

    def change(self, views: Tensor, uniforms: Tensor) -> Tensor:
        matrices = blur_matrices(moved(self.sigmas(uniforms), views.device), size=views.shape[2])
        return separable(views, matrices, matrices.transpose(1, 2))


def box_taps(sigma: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the box of each of three passes.

    Returns:
        Full taps on either side, and the weight of the next tap, float32 [B] each.
    """
    variance = wide(sigma) ** 2 / 3  # per pass
    whole = torch.floor((torch.sqrt(12 * variance + 1) - 1) / 2)
    part = (2 * whole + 1) * (whole * (whole + 1) - 3 * variance) / (6 * (variance - (whole + 1) ** 2))
    return whole.float(), part.float()


def blur_matrices(sigma: Tensor, *, size: int) -> Tensor:
    """Compute the blur of a line with repeated edges: sigma [B] -> [B, size, size]."""
    whole, part = (taps.view(-1, 1, 1) for taps in box_taps(sigma))
    lines = torch.arange(size, device=sigma.device, dtype=torch.float32)
    distance = (lines.view(1, -1, 1) - lines.view(1, 1, -1)).abs_()  # [1, size, size]
    box = (whole + 1 - distance).clamp_(0.0, 1.0) + part * (distance == whole + 1)
    # Taps beyond an end of the line fall on its last pixel: for pixel i, those farther than i or than size - 1 - i.
    whole_taps, part_taps = whole.squeeze(2), part.squeeze(2)
    beyond = (whole_taps - lines).clamp_min_(0.0) + part_taps * (lines <= whole_taps)  # [B, size]
    box[:, :, 0] += beyond
    box[:, :, -1] += beyond.flip(1)
    box /= 2 * (whole + part) + 1
    return torch.bmm(torch.bmm(box, box), box)


@dataclass(frozen=True)
class ToneJitter(Operation):
    """Change brightness, contrast and gamma of grey images, without inverting them.

    It is always applied. Uniforms: the three amounts.

    Attributes:
        brightness: largest shift in either direction, as a share of the full scale.
        contrast: range of the factor about the mean.
        gamma: range of the exponent, log-uniform.
    """

    draws: ClassVar[int] = 3

    brightness: float = 0.15
    contrast: tuple[float, float] = (0.6, 1.4)
    gamma: tuple[float, float] = (0.7, 1.4)

    def amounts(self, uniforms: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compute shift in levels, factor and exponent, each [B]."""
        shift = between(uniforms[:, 0], -1, 1) * (self.brightness * 255)
        factor = between(uniforms[:, 1], *self.contrast)
        exponent = torch.exp(between(uniforms[:, 2], math.log(self.gamma[0]), math.log(self.gamma[1])))
        return shift, factor, exponent

    def recolour(self, views: Tensor, uniforms: Tensor) -> Tensor:
        amounts = (moved(amount, views.device) for amount in self.amounts(uniforms))
        shift, factor, exponent = (amount.view(-1, 1, 1, 1) for amount in amounts)
        mean = views.mean(dim=(1, 2, 3), keepdim=True)
        toned = ((views - mean) * factor + (mean + shift)).clamp_(0.0, 255.0)
        return (toned / 255).pow_(exponent).mul_(255)


@dataclass(frozen=True)
class RandomErasing(RandomOperation):
    """Replace a rectangle by the mean level of the view.

    Uniforms: whether it is applied, area, ratio, vertical and horizontal position.
    """

    draws: ClassVar[int] = 5

    probability: float = 0.25
    area: tuple[float, float] = (0.02, 0.2)
    ratio: tuple[float, float] = (0.4, 2.5)

    def boxes(self, uniforms: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Compute top, left, height and width of the rectangle, in whole pixels, [B]."""
        draws = wide(uniforms)
        share = between(draws[:, 1], *self.area)
        ratio = torch.exp(between(draws[:, 2], math.log(self.ratio[0]), math.log(self.ratio[1])))
        height = torch.round(torch.sqrt(share / ratio) * size).clamp(1, size)
        width = torch.round(torch.sqrt(share * ratio) * size).clamp(1, size)
        top = torch.floor(draws[:, 3] * (size - height + 1))
        left = torch.floor(draws[:, 4] * (size - width + 1))
        return top, left, height, width

    def change(self, views: Tensor, uniforms: Tensor) -> Tensor:
        size = views.shape[2]
        top, left, height, width = (
            moved(side, views.device).unsqueeze(1) for side in self.boxes(uniforms, size)
        )
        lines = torch.arange(size, device=views.device)
        rows = (lines >= top) & (lines < top + height)  # [B, S]
        columns = (lines >= left) & (lines < left + width)
        erased = (rows.unsqueeze(2) & columns.unsqueeze(1)).unsqueeze(1)
        return torch.where(erased, views.mean(dim=(2, 3), keepdim=True), views)

"""AutoAugment's policy for CIFAR-10: the published table and PIL's operations.

One sub-policy is drawn per sample. A sub-policy is two operations, each with a probability and a magnitude index into
ten steps. Shear, shift and the four enhancements take a random sign, rotation does not, as in the implementation
commonly used for CIFAR.

The colour operations take and return views [B, C, S, T], float32 with whole numbers 0..255, and equal `PIL.ImageOps`
and `PIL.ImageEnhance` exactly. `factors` and `thresholds` are [B]. C is 3 (RGB) or 1 (grey).
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import ClassVar

import torch
from torch import Tensor

from maskcon.transforms.operations import Operation
from maskcon.transforms.resample import Warp, wide

FILL = 128.0


def _read_table() -> Iterator[tuple[tuple[str, float, int], tuple[str, float, int]]]:
    text = files("maskcon.transforms").joinpath("autoaugment.csv").read_text(encoding="utf-8")
    for row in csv.reader(text.splitlines()[1:]):
        yield (row[0], float(row[1]), int(row[2])), (row[3], float(row[4]), int(row[5]))


# (operation, probability, magnitude index) twice; from the appendix of the AutoAugment paper
CIFAR10_TABLE = tuple(_read_table())

# Magnitudes at index 0 and at index 9, with even steps in between.
MAGNITUDES: dict[str, tuple[float, float]] = {
    "shear_x": (0.0, 0.3),
    "shear_y": (0.0, 0.3),
    "translate_x": (0.0, 150 / 331),  # share of the side
    "translate_y": (0.0, 150 / 331),
    "rotate": (0.0, 30.0),  # degrees, counter-clockwise
    "posterize": (8.0, 4.0),  # bits kept
    "solarize": (256.0, 0.0),  # threshold
    "autocontrast": (0.0, 0.0),
    "equalize": (0.0, 0.0),
    "invert": (0.0, 0.0),
    "color": (0.0, 0.9),  # from here on: the factor is 1 plus or minus this
    "brightness": (0.0, 0.9),
    "contrast": (0.0, 0.9),
    "sharpness": (0.0, 0.9),
}
NAMES = tuple(MAGNITUDES)
GEOMETRIC = NAMES[:5]  # the first five move pixels, the others change levels
FIRST_ENHANCEMENT = NAMES.index("color")  # from here on the magnitude is added to a factor of 1
UNSIGNED = ("rotate", "posterize", "solarize", "autocontrast", "equalize", "invert")
NOTHING = -1  # in place of an operation's number: it was not applied


def magnitude(name: str, index: int) -> float:
    """Return the magnitude of an operation at a step 0..9 of the table."""
    low, high = MAGNITUDES[name]
    value = low + (high - low) * index / 9
    return float(round(value)) if name == "posterize" else value


@cache
def _table() -> tuple[Tensor, Tensor, Tensor]:
    """Return numbers of the operations, probabilities and magnitudes, each [25, 2]."""
    numbers = [[NAMES.index(name) for name, _, _ in pair] for pair in CIFAR10_TABLE]
    chances = [[chance for _, chance, _ in pair] for pair in CIFAR10_TABLE]
    sizes = [[magnitude(name, index) for name, _, index in pair] for pair in CIFAR10_TABLE]
    return torch.tensor(numbers), torch.tensor(chances), torch.tensor(sizes, dtype=torch.float64)


@dataclass(frozen=True)
class Choice:
    """Operations per sample, and their signed magnitudes; both [B, 2], on the CPU.

    operations: indices into NAMES, or NOTHING.
    """

    operations: Tensor
    magnitudes: Tensor

    @property
    def amounts(self) -> Tensor:
        """Arguments of the colour operations, float32 [B, 2]: bits, threshold or factor."""
        # added in float64, as in PIL; float32 from here on
        enhanced = self.operations >= FIRST_ENHANCEMENT
        return torch.where(enhanced, 1 + self.magnitudes, self.magnitudes).float()


@dataclass(frozen=True)
class AutoAugment(Operation):
    """The CIFAR-10 policy; uncovered pixels are mid-grey (128).

    Uniforms: the sub-policy, whether each of its two operations is applied, the two signs.
    """

    # DEVIATES: the geometry of both operations is part of the view's one resampling step and colour follows, so where
    # the table has colour before geometry the two are swapped. Operations on single pixels commute with resampling up
    # to interpolation and leave the grey margin; equalize and autocontrast then see the margin too. Interpolation is
    # bilinear where the common code takes the nearest pixel (rotate) or cubic (shear).

    draws: ClassVar[int] = 5
    warps: ClassVar[bool] = True

    def choose(self, uniforms: Tensor) -> Choice:
        """Choose the operations by uniforms [B, 5]."""
        policy = (uniforms[:, 0].double() * len(CIFAR10_TABLE)).long()  # [B]
        numbers, chances, sizes = (column[policy] for column in _table())
        unsigned = torch.tensor([name in UNSIGNED for name in NAMES])[numbers]
        return Choice(
            torch.where(uniforms[:, 1:3] < chances, numbers, NOTHING),
            torch.where((uniforms[:, 3:5] < 0.5) & ~unsigned, -sizes, sizes),
        )

    def warp(self, uniforms: Tensor, size: int) -> Warp:
        choice = self.choose(uniforms)
        active = ((choice.operations != NOTHING) & (choice.operations < len(GEOMETRIC))).any(dim=1)
        return Warp(geometric_matrices(choice, size).float(), active, FILL)

    def recolour(self, views: Tensor, uniforms: Tensor) -> Tensor:
        choice = self.choose(uniforms)
        for turn in range(2):
            for name, operation in COLOUR_OPERATIONS.items():
                rows = (choice.operations[:, turn] == NAMES.index(name)).nonzero().squeeze(1)
                if len(rows):
                    amounts = choice.amounts[rows, turn].to(views.device)
                    rows = rows.to(views.device)
                    views[rows] = operation(views[rows].round_(), amounts)  # PIL works on whole levels
        return views


def geometric_matrices(choice: Choice, size: int) -> Tensor:
    """Compute maps from the warped view to the unwarped one, as PIL: [B, 2, 3, 3].

    Colour operations give the identity.
    """

    def amount(name: str) -> Tensor:  # [B, 2], 0 where another operation was drawn
        return torch.where(choice.operations == NAMES.index(name), choice.magnitudes, 0.0)

    angle = amount("rotate") * (math.pi / 180)
    cosine, sine, half = torch.cos(angle), torch.sin(angle), size / 2
    # Whole pixels, as by the nearest-pixel lookup of the common code: a shift does not blur.
    shift_x, shift_y = (torch.floor(amount(name) * size + 0.5) for name in ("translate_x", "translate_y"))
    entries = [
        cosine, amount("shear_x") - sine, shift_x + half * (1 - cosine + sine),
        amount("shear_y") + sine, cosine, shift_y + half * (1 - cosine - sine),
        torch.zeros_like(angle), torch.zeros_like(angle), torch.ones_like(angle),
    ]  # fmt: skip
    return torch.stack(entries, dim=2).view(*angle.shape, 3, 3)


# PIL's weights of red, green and blue in luma, in units of 1/65536.
LUMA = (19595.0, 38470.0, 7471.0)


def luma(views: Tensor) -> Tensor:
    """Convert to "L" as PIL does: [B, C, S, T] -> [B, 1, S, T]."""
    if views.shape[1] == 1:
        return views
    red, green, blue = views.unbind(1)
    # All sums are whole numbers below 2**24, so float32 holds them exactly.
    total = (red * LUMA[0]).add_(green * LUMA[1]).add_(blue * LUMA[2]).add_(32768.0)
    return total.mul_(1 / 65536).floor_().unsqueeze(1)


def blend(base: Tensor, views: Tensor, factors: Tensor) -> Tensor:
    """Apply PIL's Image.blend: base + factor * (views - base), clipped, truncated."""
    # Multiply and add round separately, as in PIL; a fused operation could differ by one level.
    change = (views - base).mul_(factors.float().view(-1, 1, 1, 1))
    return change.add_(base).clamp_(0.0, 255.0).floor_()


def brightness(views: Tensor, factors: Tensor) -> Tensor:
    """Apply ImageEnhance.Brightness: towards black (0) or away from it (above 1)."""
    return (views * factors.float().view(-1, 1, 1, 1)).clamp_(0.0, 255.0).floor_()


def contrast(views: Tensor, factors: Tensor) -> Tensor:
    """Apply ImageEnhance.Contrast: towards the mean luma of an image, or away."""
    pixels = views.shape[2] * views.shape[3]
    totals = luma(views).to(torch.int32).sum(dim=(1, 2, 3))  # int64, exact
    mean = torch.div(2 * totals + pixels, 2 * pixels, rounding_mode="floor").float()  # floor(mean + .5)
    return blend(mean.view(-1, 1, 1, 1), views, factors)


def saturation(views: Tensor, factors: Tensor) -> Tensor:
    """Apply ImageEnhance.Color: towards grey or away; grey images are unchanged."""
    if views.shape[1] == 1:
        return views
    return blend(luma(views), views, factors)


def sharpness(views: Tensor, factors: Tensor) -> Tensor:
    """Apply ImageEnhance.Sharpness: towards PIL's SMOOTH filter or away from it.

    The outermost pixels are unchanged.
    """
    if min(views.shape[2:]) < 3:
        return views
    lines = views[:, :, :-2] + views[:, :, 1:-1] + views[:, :, 2:]  # [B, C, S-2, T]
    total = lines[:, :, :, :-2] + lines[:, :, :, 1:-1] + lines[:, :, :, 2:]
    total.add_(views[:, :, 1:-1, 1:-1], alpha=4.0)  # whole numbers, so exact
    smooth = views.clone()
    smooth[:, :, 1:-1, 1:-1] = total.add_(6.5).div_(13.0).floor_()
    return blend(smooth, views, factors)


def invert(views: Tensor) -> Tensor:
    """Apply ImageOps.invert."""
    return 255.0 - views


def solarize(views: Tensor, thresholds: Tensor) -> Tensor:
    """Apply ImageOps.solarize: invert levels at or above the threshold."""
    return torch.where(views < thresholds.float().view(-1, 1, 1, 1), views, 255.0 - views)


def posterize(views: Tensor, bits: Tensor) -> Tensor:
    """Apply ImageOps.posterize: keep the highest bits."""
    step = torch.pow(2.0, 8 - bits.float()).view(-1, 1, 1, 1)
    return torch.floor(views / step).mul_(step)


def autocontrast(views: Tensor) -> Tensor:
    """Apply ImageOps.autocontrast without cutoff: stretch each channel to 0..255."""
    lines = views.reshape(views.shape[0] * views.shape[1], -1)  # one line per channel
    low = lines.amin(dim=1, keepdim=True)  # aminmax takes five times as long as both
    span = lines.amax(dim=1, keepdim=True) - low
    # PIL multiplies in float64 and truncates: a whole-number result may come out slightly below and lose a level.
    # A table of the 256 levels repeats its arithmetic and is smaller than the images.
    # Divide a tensor by a tensor: `255.0 / tensor` multiplies by the reciprocal, which rounds twice.
    scale = torch.full_like(wide(span), 255.0) / span.clamp_min(1.0)
    levels = torch.arange(256, device=views.device, dtype=scale.dtype)
    table = (levels * scale).add_(-low * scale).clamp_(0.0, 255.0).floor_()  # [lines, 256]
    table = torch.where(span > 0, table, levels)
    return _look_up(table, _keys(lines)).view_as(views)


def equalize(views: Tensor) -> Tensor:
    """Apply ImageOps.equalize: spread each channel's levels by its histogram."""
    lines = views.reshape(views.shape[0] * views.shape[1], -1)
    keys = _keys(lines)
    histogram = torch.bincount(keys, minlength=lines.shape[0] * 256).view(-1, 256)
    counts = wide(histogram)
    below = counts.cumsum(1).sub_(counts)  # pixels under each level
    # All pixels but those of the highest level present make 255 steps.
    last = lines.amax(dim=1, keepdim=True).long()
    step = below.gather(1, last).div_(255).floor_()  # [lines, 1]
    table = below.add_(step.div(2).floor_()).div_(step.clamp_min(1)).floor_().clamp_max_(255)
    levels = torch.arange(256, device=views.device, dtype=table.dtype)
    return _look_up(torch.where(step > 0, table, levels), keys).view_as(views)


def _keys(lines: Tensor) -> Tensor:
    """Return the flat index of each pixel of lines [L, P] in a table [L, 256], int32."""
    offsets = torch.arange(lines.shape[0], device=lines.device, dtype=torch.int32).mul_(256)
    return lines.to(torch.int32).add_(offsets.unsqueeze(1)).view(-1)


def _look_up(table: Tensor, keys: Tensor) -> Tensor:
    return table.float().view(-1).index_select(0, keys)


# Functions of views [n, C, S, S] of whole numbers 0..255 and amounts [n]: bits, threshold or factor.
COLOUR_OPERATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "posterize": posterize,
    "solarize": solarize,
    "autocontrast": lambda views, _: autocontrast(views),
    "equalize": lambda views, _: equalize(views),
    "invert": lambda views, _: invert(views),
    "color": saturation,
    "brightness": brightness,
    "contrast": contrast,
    "sharpness": sharpness,
}

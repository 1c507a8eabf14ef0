"""AutoAugment's policy for CIFAR-10: the published table, with one sub-policy drawn per sample.

A sub-policy is two operations, each with a probability and a magnitude index into ten steps. Shear, shift and the four
enhancements take a random sign, rotation does not, as in the implementation commonly used for CIFAR.
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

from maskcon.transforms import colour
from maskcon.transforms.operations import Operation
from maskcon.transforms.resample import Warp

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
    """Operations per sample as indices into NAMES (or NOTHING), and signed magnitudes, both [B, 2], on the CPU."""

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
        draws = uniforms.cpu()  # rows are grouped by operation there
        policy = (draws[:, 0].double() * len(CIFAR10_TABLE)).long()  # [B]
        numbers, chances, sizes = (column[policy] for column in _table())
        unsigned = torch.tensor([name in UNSIGNED for name in NAMES])[numbers]
        return Choice(
            torch.where(draws[:, 1:3] < chances, numbers, NOTHING),
            torch.where((draws[:, 3:5] < 0.5) & ~unsigned, -sizes, sizes),
        )

    def warp(self, uniforms: Tensor, size: int) -> Warp:
        choice = self.choose(uniforms)
        active = ((choice.operations != NOTHING) & (choice.operations < len(GEOMETRIC))).any(dim=1)
        matrices = geometric_matrices(choice, size).float().to(uniforms.device)
        return Warp(matrices, active.to(uniforms.device), FILL)

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
    """Compute maps from the warped view to the unwarped one, as in PIL's transform: [B, 2, 3, 3].

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


# Functions of views [n, C, S, S] of whole numbers 0..255 and amounts [n]: bits, threshold or factor.
COLOUR_OPERATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "posterize": colour.posterize,
    "solarize": colour.solarize,
    "autocontrast": lambda views, _: colour.autocontrast(views),
    "equalize": lambda views, _: colour.equalize(views),
    "invert": lambda views, _: colour.invert(views),
    "color": colour.saturation,
    "brightness": colour.brightness,
    "contrast": colour.contrast,
    "sharpness": colour.sharpness,
}

"""AutoAugment's policy for CIFAR-10: the published table, one sub-policy drawn for EACH sample.

A sub-policy is two operations, each with its own probability and a magnitude index into ten steps. Shear, shift and the
four enhancements take a random sign, rotation does not: as in the implementation that CIFAR work commonly uses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskcon.transforms import colour
from maskcon.transforms.operations import Operation
from maskcon.transforms.resample import Warp

FILL = 128.0

# (operation, probability, magnitude index) twice. Table of the AutoAugment paper's appendix.
CIFAR10_TABLE: tuple[tuple[tuple[str, float, int], tuple[str, float, int]], ...] = (
    (("invert", 0.1, 7), ("contrast", 0.2, 6)),
    (("rotate", 0.7, 2), ("translate_x", 0.3, 9)),
    (("sharpness", 0.8, 1), ("sharpness", 0.9, 3)),
    (("shear_y", 0.5, 8), ("translate_y", 0.7, 9)),
    (("autocontrast", 0.5, 8), ("equalize", 0.9, 2)),
    (("shear_y", 0.2, 7), ("posterize", 0.3, 7)),
    (("color", 0.4, 3), ("brightness", 0.6, 7)),
    (("sharpness", 0.3, 9), ("brightness", 0.7, 9)),
    (("equalize", 0.6, 5), ("equalize", 0.5, 1)),
    (("contrast", 0.6, 7), ("sharpness", 0.6, 5)),
    (("color", 0.7, 7), ("translate_x", 0.5, 8)),
    (("equalize", 0.3, 7), ("autocontrast", 0.4, 8)),
    (("translate_y", 0.4, 3), ("sharpness", 0.2, 6)),
    (("brightness", 0.9, 6), ("color", 0.2, 8)),
    (("solarize", 0.5, 2), ("invert", 0.0, 3)),
    (("equalize", 0.2, 0), ("autocontrast", 0.6, 0)),
    (("equalize", 0.2, 8), ("equalize", 0.6, 4)),
    (("color", 0.9, 9), ("equalize", 0.6, 6)),
    (("autocontrast", 0.8, 4), ("solarize", 0.2, 8)),
    (("brightness", 0.1, 3), ("color", 0.7, 0)),
    (("solarize", 0.4, 5), ("autocontrast", 0.9, 3)),
    (("translate_y", 0.9, 9), ("translate_y", 0.7, 9)),
    (("autocontrast", 0.9, 2), ("solarize", 0.8, 3)),
    (("equalize", 0.8, 8), ("invert", 0.1, 3)),
    (("translate_y", 0.7, 9), ("autocontrast", 0.9, 1)),
)

# Magnitude at index 0 and at index 9; the steps between are even.
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
    "color": (0.0, 0.9),  # this and the next three: the factor is 1 plus or minus this
    "brightness": (0.0, 0.9),
    "contrast": (0.0, 0.9),
    "sharpness": (0.0, 0.9),
}
NAMES = tuple(MAGNITUDES)
GEOMETRIC = NAMES[:5]  # the first five move pixels, the others change levels
FIRST_ENHANCEMENT = NAMES.index("color")  # from here on the magnitude is added to a factor of 1
UNSIGNED = ("rotate", "posterize", "solarize", "autocontrast", "equalize", "invert")
_TURNS = np.array([0, 3])
NOTHING = -1  # in place of an operation's number: it was not applied


def magnitude(name: str, index: int) -> float:
    """The magnitude of an operation at a step 0..9 of the table."""
    low, high = MAGNITUDES[name]
    value = low + (high - low) * index / 9
    return float(round(value)) if name == "posterize" else value


@dataclass(frozen=True)
class Choice:
    """Operations of each sample as indices into NAMES (or NOTHING), and signed magnitudes, both [B, T]."""

    operations: Tensor
    magnitudes: Tensor

    @property
    def amounts(self) -> Tensor:
        """Arguments of the colour operations, float32 [B, T]: bits, threshold or factor."""
        # Added in doubles, as PIL gets its factor; float32 from here on.
        enhanced = self.operations >= FIRST_ENHANCEMENT
        return torch.where(enhanced, 1 + self.magnitudes, self.magnitudes).float()


@cache
def _chances() -> NDArray[np.float32]:
    """Probabilities of the table: [25, 2]."""
    return np.array([[probability for _, probability, _ in pair] for pair in CIFAR10_TABLE], np.float32)


@cache
def outcomes() -> Choice:
    """List all outcomes of a sample in one of its two turns, as a `Choice` of [150, 1].

    By sub-policy and turn, in the table's order, and then three each: not applied, applied, applied with the sign
    turned.
    """
    number, amount = [], []
    for name, _, index in (operation for pair in CIFAR10_TABLE for operation in pair):
        size = magnitude(name, index)
        number += [[NOTHING], [NAMES.index(name)], [NAMES.index(name)]]
        amount += [[size], [size], [size if name in UNSIGNED else -size]]
    return Choice(torch.tensor(number), torch.tensor(amount, dtype=torch.float64))


@cache
def _outcome_warps(size: int) -> tuple[Tensor, Tensor]:
    """Of each outcome, in a view of `size`: whether it moves pixels [150], and how, float32 [150, 9]."""
    operations = outcomes().operations[:, 0]
    geometric = (operations != NOTHING) & (operations < len(GEOMETRIC))
    return geometric, geometric_matrices(outcomes(), size).float().flatten(1)


@dataclass(frozen=True)
class AutoAugment(Operation):
    """The CIFAR-10 policy. Uniforms: sub-policy, whether each of its two operations is applied, the two signs.

    What the geometry uncovers is mid-grey (128).
    """

    # DEVIATES: both operations' geometry is folded into the view's one resample and colour follows, so where the
    # table has colour before geometry the two are swapped. Operations on single pixels commute with resampling up to
    # interpolation and leave the margin's grey; equalize and autocontrast then see the margin too. Interpolation is
    # bilinear where the common code takes the nearest pixel (rotate) or cubic (shear).

    @property
    def draws(self) -> int:
        return 5

    @property
    def warps(self) -> bool:
        return True

    def outcome(self, uniforms: Tensor) -> Tensor:
        """uniforms [B, 5] -> what happens in each of the two turns, [B, 2] numbers into `outcomes`.

        On the CPU, because rows are then grouped by operation.
        """
        draws = uniforms.cpu().numpy()  # numpy takes a fraction of torch's time for so few numbers
        policy = (draws[:, 0].astype(np.float64) * len(CIFAR10_TABLE)).astype(np.int64)  # [B]
        applied = draws[:, 1:3] < _chances()[policy]
        turned = draws[:, 3:5] < 0.5
        # the places of the two turns in `outcomes`, and 0, 1 or 2 beyond
        return torch.from_numpy(policy[:, None] * 6 + _TURNS + applied + (applied & turned))

    def choose(self, uniforms: Tensor) -> Choice:
        """uniforms [B, 5] -> the operations."""
        outcome = self.outcome(uniforms)
        return Choice(*(column[outcome, 0] for column in (outcomes().operations, outcomes().magnitudes)))

    def warp(self, uniforms: Tensor, size: int) -> Warp:
        outcome = self.outcome(uniforms).view(-1)
        moves, matrices = (table.index_select(0, outcome) for table in _outcome_warps(size))
        matrices = matrices.view(-1, 2, 3, 3).to(uniforms.device)
        return Warp(matrices, moves.view(-1, 2).any(dim=1), FILL)

    def recolour(self, views: Tensor, uniforms: Tensor) -> Tensor:
        choice = self.choose(uniforms)
        amounts = choice.amounts
        for turn in range(2):
            # Rows sorted by operation: each group is then a slice of `order`, and only chosen rows are touched.
            order = choice.operations[:, turn].argsort(stable=True)
            counts = torch.bincount(choice.operations[:, turn] - NOTHING, minlength=len(NAMES) + 1).tolist()
            sorted_amounts = amounts[:, turn].index_select(0, order).to(views.device)
            order = order.to(views.device)
            first = sum(counts[: len(GEOMETRIC) + 1])  # nothing to do, or done by the resample
            for name, count in zip(NAMES[len(GEOMETRIC) :], counts[len(GEOMETRIC) + 1 :], strict=True):
                if count == 0:
                    continue
                rows = order[first : first + count]
                pixels = views.index_select(0, rows).round_()  # PIL works on whole levels
                pixels = recoloured(name, pixels, sorted_amounts[first : first + count])
                views.index_copy_(0, rows, pixels)
                first += count
        return views


def geometric_matrices(choice: Choice, size: int) -> Tensor:
    """Maps from the warped view back to the view, as PIL's transform takes them: [B, T, 3, 3]; colour maps nothing."""

    def amount(name: str) -> Tensor:  # [B, T], nought where another operation was drawn
        return torch.where(choice.operations == NAMES.index(name), choice.magnitudes, 0.0)

    angle = amount("rotate") * (math.pi / 180)
    cosine, sine, half = torch.cos(angle), torch.sin(angle), size / 2
    # Whole pixels, as the common code's nearest-pixel lookup has it: a shift then blurs nothing.
    shift_x, shift_y = (torch.floor(amount(name) * size + 0.5) for name in ("translate_x", "translate_y"))
    entries = [
        cosine, amount("shear_x") - sine, shift_x + half * (1 - cosine + sine),
        amount("shear_y") + sine, cosine, shift_y + half * (1 - cosine - sine),
        torch.zeros_like(angle), torch.zeros_like(angle), torch.ones_like(angle),
    ]  # fmt: skip
    return torch.stack(entries, dim=2).view(*angle.shape, 3, 3)


def recoloured(name: str, views: Tensor, amounts: Tensor) -> Tensor:
    """One colour operation: views [n, C, S, S] of whole numbers 0..255; amounts [n]: bits, threshold or factor."""
    match name:
        case "autocontrast":
            return colour.autocontrast(views)
        case "equalize":
            return colour.equalize(views)
        case "invert":
            return colour.invert(views)
        case "posterize":
            return colour.posterize(views, amounts)
        case "solarize":
            return colour.solarize(views, amounts)
        case "color":
            return colour.saturation(views, amounts)
        case "brightness":
            return colour.brightness(views, amounts)
        case "contrast":
            return colour.contrast(views, amounts)
        case _:
            return colour.sharpness(views, amounts)

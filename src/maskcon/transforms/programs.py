"""What an operation asks of the compiled loops: for each sample a number for what to do, and the amounts.

Amounts follow from the uniforms by the very code that the tensor path runs. Importing this imports numba.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, singledispatch

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskcon._utils.compilation import Entry
from maskcon.transforms import autoaugment, jitter
from maskcon.transforms.kernels import levels, photos
from maskcon.transforms.operations import Affine, Operation, Perspective

AMOUNTS = 4  # most amounts that an operation has
NOTHING = -1

LEVELS = {
    "autocontrast": levels.AUTOCONTRAST,
    "equalize": levels.EQUALIZE,
    "invert": levels.INVERT,
    "posterize": levels.POSTERIZE,
    "solarize": levels.SOLARIZE,
    "color": levels.COLOR,
    "brightness": levels.BRIGHTNESS,
    "contrast": levels.CONTRAST,
    "sharpness": levels.SHARPNESS,
}


@dataclass(frozen=True)
class Program:
    """Operations [B, T] int8, done in turn (NOTHING: skipped), their amounts float32 [B, T, 4], and who does them."""

    loop: Entry
    operations: NDArray[np.int8]
    amounts: NDArray[np.float32]

    @classmethod
    def of(cls, loop: Entry, operations: Tensor, *amounts: Tensor) -> Program:
        """operations [B, T]; each of up to four amounts [B, T]."""
        table = torch.zeros(*operations.shape, AMOUNTS)
        for place, amount in enumerate(amounts):
            table[:, :, place] = amount
        return cls(loop, operations.to(torch.int8).numpy(), table.numpy())

    def then(self, other: Program) -> Program:
        """Both in one call, for two of the same loop."""
        return Program(
            self.loop,
            np.concatenate([self.operations, other.operations], axis=1),
            np.concatenate([self.amounts, other.amounts], axis=1),
        )


@cache
def _outcomes() -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Of each outcome of AutoAugment: what is done to the colours [150], and amounts [150, 4]."""
    choice = autoaugment.outcomes()
    names = [
        NOTHING if n == autoaugment.NOTHING else LEVELS.get(autoaugment.NAMES[n], NOTHING)
        for n in choice.operations[:, 0].tolist()
    ]
    whole = Program.of(levels.recolour_rows, torch.tensor(names).unsqueeze(1), choice.amounts)
    return whole.operations[:, 0], whole.amounts[:, 0]


@singledispatch
def program(operation: Operation, uniforms: Tensor, size: int) -> Program | None:
    """What an operation does to the colours of views of `size`, by uniforms [B, draws]; None: nothing."""
    raise NotImplementedError(f"{type(operation).__name__} has no compiled loop")


@program.register(Affine)
@program.register(Perspective)
def _(operation: Operation, uniforms: Tensor, size: int) -> None:  # noqa: ARG001
    return None  # all of it is in the warp


@program.register
def _(operation: autoaugment.AutoAugment, uniforms: Tensor, size: int) -> Program:  # noqa: ARG001
    numbers, amounts = _outcomes()
    outcome = operation.outcome(uniforms).numpy()
    return Program(levels.recolour_rows, numbers[outcome], amounts[outcome])


@program.register
def _(operation: jitter.ColourJitter, uniforms: Tensor, size: int) -> Program:  # noqa: ARG001
    chosen = (uniforms[:, 0] < operation.probability).unsqueeze(1)
    order = operation.order(uniforms)  # [B, 4]
    amounts = operation.amounts(uniforms).gather(1, order)
    return Program.of(photos.change_rows, order.where(chosen, NOTHING), amounts)


@program.register
def _(operation: jitter.Greyscale, uniforms: Tensor, size: int) -> Program:  # noqa: ARG001
    return Program.of(photos.change_rows, _if_chosen(uniforms, operation.probability, photos.GREY))


@program.register
def _(operation: jitter.GaussianBlur, uniforms: Tensor, size: int) -> Program:  # noqa: ARG001
    whole, part = jitter.box_taps(operation.sigmas(uniforms))
    numbers = _if_chosen(uniforms, operation.probability, photos.BLUR)
    return Program.of(photos.change_rows, numbers, whole.unsqueeze(1), part.unsqueeze(1))


@program.register
def _(operation: jitter.ToneJitter, uniforms: Tensor, size: int) -> Program:  # noqa: ARG001
    numbers = torch.full((len(uniforms), 1), photos.TONE)
    return Program.of(
        photos.change_rows, numbers, *(amount.unsqueeze(1) for amount in operation.amounts(uniforms))
    )


@program.register
def _(operation: jitter.RandomErasing, uniforms: Tensor, size: int) -> Program:
    numbers = _if_chosen(uniforms, operation.probability, photos.ERASE)
    return Program.of(
        photos.change_rows, numbers, *(side.unsqueeze(1) for side in operation.boxes(uniforms, size))
    )


def _if_chosen(uniforms: Tensor, probability: float, number: int) -> Tensor:
    """[B, 1]: the number of an operation where the first uniform lets it happen."""
    return torch.where(uniforms[:, :1] < probability, number, NOTHING)

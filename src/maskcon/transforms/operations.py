"""Operations of a policy after crop and mirror: base classes and warps.

An operation declares how many uniforms it needs per sample and is a pure function of them. A policy first asks for the
warp, resamples once, and then applies the colour changes of all operations in order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from maskcon.transforms.resample import Warp, wide


class Operation:
    """Base: no uniforms, no warp, no change of colour.

    Attributes:
        draws: uniforms needed per sample.
        warps: whether `warp` returns a warp; a policy holds at most one operation that does.
    """

    draws: ClassVar[int] = 0
    warps: ClassVar[bool] = False

    def warp(self, uniforms: Tensor, size: int) -> Warp | None:  # noqa: ARG002
        """Return how views of size x size are warped: uniforms [B, draws]."""
        return None

    def recolour(self, views: Tensor, uniforms: Tensor) -> Tensor:  # noqa: ARG002
        """Change views [B, C, S, S] on 0..255, possibly in place.

        uniforms: [B, draws], on the CPU.
        """
        return views


class RandomOperation(Operation):
    """Base of random colour changes: the first uniform decides whether to `change`."""

    probability: float

    def change(self, views: Tensor, uniforms: Tensor) -> Tensor:
        """Change the chosen rows; see `recolour`."""
        raise NotImplementedError

    def recolour(self, views: Tensor, uniforms: Tensor) -> Tensor:
        rows = (uniforms[:, 0] < self.probability).nonzero().squeeze(1)
        if len(rows):
            here = rows.to(views.device, non_blocking=True)
            views[here] = self.change(views[here], uniforms[rows])
        return views


def between(uniforms: Tensor, low: float, high: float) -> Tensor:
    """Scale uniforms in [0, 1) to [low, high)."""
    return low + uniforms * (high - low)


@dataclass(frozen=True)
class Perspective(Operation):
    """torchvision's RandomPerspective.

    Each corner moves inwards by up to half of `distortion` of the side.

    Uniforms: whether it is applied (1), then (x, y) of the corners top left, top right, bottom right, bottom left (8).
    Uncovered pixels are black.
    """

    draws: ClassVar[int] = 9
    warps: ClassVar[bool] = True

    distortion: float = 0.5
    probability: float = 0.5

    def warp(self, uniforms: Tensor, size: int) -> Warp:
        reach = int(self.distortion * (size // 2))
        moves = torch.floor(wide(uniforms[:, 1:]) * (reach + 1)).view(-1, 4, 2)
        # A corner on the far side moves from size - 1 - reach up to size - 1.
        far = moves.new_tensor([[0, 0], [1, 0], [1, 1], [0, 1]]) * (size - 1 - reach)
        matrices = quad_to_square(moves + far, side=size - 1)
        return Warp(matrices.unsqueeze(1), uniforms[:, 0] < self.probability, fill=0.0, projective=True)


def quad_to_square(corners: Tensor, *, side: float) -> Tensor:
    """Compute the projective maps [B, 3, 3] from four corners to a square.

    The square is (0, 0), (side, 0), (side, side), (0, side).

    corners: [B, 4, 2] as (x, y), clockwise from the top left.

    The map from the unit square to the corners has a closed
    form; its adjugate is its inverse up to a factor, which homogeneous coordinates ignore.
    """
    (x0, y0), (x1, y1), (x2, y2), (x3, y3) = (corner.unbind(1) for corner in corners.unbind(1))
    bend_x, bend_y = x0 - x1 + x2 - x3, y0 - y1 + y2 - y3
    right_x, right_y, below_x, below_y = x1 - x2, y1 - y2, x3 - x2, y3 - y2
    area = right_x * below_y - below_x * right_y
    area = torch.where(area == 0, 1.0, area)  # a view of one pixel has no area: any map is valid
    g = (bend_x * below_y - below_x * bend_y) / area
    h = (right_x * bend_y - bend_x * right_y) / area
    one = torch.ones_like(g)
    first = torch.stack([x1 - x0 + g * x1, x3 - x0 + h * x3, x0], dim=1)
    second = torch.stack([y1 - y0 + g * y1, y3 - y0 + h * y3, y0], dim=1)
    third = torch.stack([g, h, one], dim=1)
    pairs = ((second, third), (third, first), (first, second))
    adjugate = torch.stack([torch.linalg.cross(a, b) for a, b in pairs], dim=2)
    return adjugate * adjugate.new_tensor([side, side, 1.0]).view(1, 3, 1)


@dataclass(frozen=True)
class Affine(Operation):
    """Random rotation, zoom and shift about the centre of the view.

    Uncovered pixels repeat the edge of the image. Uniforms: rotation, area, horizontal and vertical shift.

    Attributes:
        rotation: largest angle in either direction, in degrees.
        area: range of the visible share of the image's area (above 1 zooms out).
        shift: largest shift in either direction as a share of the side, beyond the margin of a zoomed-in window.
    """

    draws: ClassVar[int] = 4
    warps: ClassVar[bool] = True

    rotation: float = 15.0
    area: tuple[float, float] = (0.75, 1.38)
    shift: float = 0.06

    def warp(self, uniforms: Tensor, size: int) -> Warp:
        draws = wide(uniforms)
        angle = between(draws[:, 0], -1, 1) * math.radians(self.rotation)
        side = torch.sqrt(between(draws[:, 1], *self.area))  # of the visible window, as a share of the view's
        margin = ((1 - side).clamp_min(0) / 2 + self.shift).unsqueeze(1)
        centre = (0.5 + between(draws[:, 2:], -1, 1) * margin) * size  # [B, 2], of the window
        cosine, sine = torch.cos(angle) * side, torch.sin(angle) * side
        zero, one = torch.zeros_like(side), torch.ones_like(side)
        half = size / 2
        entries = [
            cosine, sine, centre[:, 0] - half * (cosine + sine),
            -sine, cosine, centre[:, 1] - half * (cosine - sine),
            zero, zero, one,
        ]  # fmt: skip
        matrix = torch.stack(entries, dim=1).view(-1, 1, 3, 3)
        return Warp(matrix, torch.ones_like(side, dtype=torch.bool), fill=None)

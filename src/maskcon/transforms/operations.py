"""Operations of a policy after crop and mirror: warps and colour changes.

An operation declares how many uniforms it needs per sample and is a pure function of them. The policy asks every
operation for its warp first, resamples once, and then lets every operation recolour, in order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from maskcon.transforms.boxes import wide
from maskcon.transforms.resample import Warp


class Operation:
    """Base: no uniforms, no warp, no change of colour."""

    @property
    def draws(self) -> int:
        """Uniforms needed per sample."""
        return 0

    @property
    def warps(self) -> bool:
        """Whether `warp` gives anything; a policy holds at most one such operation."""
        return False

    def warp(self, uniforms: Tensor, size: int) -> Warp | None:  # noqa: ARG002
        """uniforms [B, draws] -> how the view of size x size is warped, or None."""
        return None

    def recolour(self, views: Tensor, uniforms: Tensor) -> Tensor:  # noqa: ARG002
        """views [B, C, S, S] on 0..255, uniforms [B, draws] -> the same shape and scale; may reuse `views`."""
        return views


def between(uniforms: Tensor, low: float, high: float) -> Tensor:
    """Scale uniforms in [0, 1) to [low, high)."""
    return low + uniforms * (high - low)


def chosen_rows(uniforms: Tensor, probability: float) -> Tensor:
    """Return the indices of rows of uniforms [B] below a probability."""
    return (uniforms < probability).nonzero().squeeze(1)


@dataclass(frozen=True)
class Perspective(Operation):
    """torchvision's RandomPerspective: each corner moves inwards by up to half of `distortion` of the side.

    Uniforms: whether to (1), then (x, y) of the corners top left, top right, bottom right, bottom left (8).
    What the corners uncover is black.
    """

    distortion: float = 0.5
    probability: float = 0.5

    @property
    def draws(self) -> int:
        return 9

    @property
    def warps(self) -> bool:
        return True

    def warp(self, uniforms: Tensor, size: int) -> Warp:
        reach = int(self.distortion * (size // 2))
        moves = torch.floor(wide(uniforms[:, 1:]) * (reach + 1)).view(-1, 4, 2)
        # A corner on the far side moves from size - 1 - reach up to size - 1.
        far = moves.new_tensor([[0, 0], [1, 0], [1, 1], [0, 1]]) * (size - 1 - reach)
        matrices = quad_to_square(moves + far, side=size - 1)
        return Warp(matrices.unsqueeze(1), uniforms[:, 0] < self.probability, fill=0.0, projective=True)


def quad_to_square(corners: Tensor, *, side: float) -> Tensor:
    """The projective maps that take four corners to the square (0, 0), (side, 0), (side, side), (0, side).

    corners: [B, 4, 2] as (x, y), clockwise from the top left; returns [B, 3, 3]. The map from the unit square to the
    corners has a closed form; its adjugate is its inverse up to a factor, which homogeneous coordinates ignore.
    """
    (x0, y0), (x1, y1), (x2, y2), (x3, y3) = (corner.unbind(1) for corner in corners.unbind(1))
    bend_x, bend_y = x0 - x1 + x2 - x3, y0 - y1 + y2 - y3
    right_x, right_y, below_x, below_y = x1 - x2, y1 - y2, x3 - x2, y3 - y2
    area = right_x * below_y - below_x * right_y
    area = torch.where(
        area == 0, torch.ones_like(area), area
    )  # a view of one pixel has no area: any map is valid
    g = (bend_x * below_y - below_x * bend_y) / area
    h = (right_x * bend_y - bend_x * right_y) / area
    one = torch.ones_like(g)
    first = torch.stack([x1 - x0 + g * x1, x3 - x0 + h * x3, x0], dim=1)
    second = torch.stack([y1 - y0 + g * y1, y3 - y0 + h * y3, y0], dim=1)
    third = torch.stack([g, h, one], dim=1)
    adjugate = torch.stack(
        [
            torch.linalg.cross(second, third),
            torch.linalg.cross(third, first),
            torch.linalg.cross(first, second),
        ],
        dim=2,
    )
    return adjugate * adjugate.new_tensor([side, side, 1.0]).view(1, 3, 1)


@dataclass(frozen=True)
class Affine(Operation):
    """Random rotation, zoom and shift about the centre of the view; what is uncovered repeats the image's edge.

    rotation: degrees to either side. area: share of the image's area that is seen (above 1 zooms out).
    shift: share of the side, to either side, on top of the play that a zoomed-in window has.
    Uniforms: rotation, area, horizontal and vertical shift.
    """

    rotation: float = 15.0
    area: tuple[float, float] = (0.75, 1.38)
    shift: float = 0.06

    @property
    def draws(self) -> int:
        return 4

    @property
    def warps(self) -> bool:
        return True

    def warp(self, uniforms: Tensor, size: int) -> Warp:
        draws = wide(uniforms)
        angle = between(draws[:, 0], -1, 1) * math.radians(self.rotation)
        side = torch.sqrt(between(draws[:, 1], *self.area))  # side of the window seen, as a share of the view
        play = (1 - side).clamp_min(0) / 2 + self.shift
        centre = (
            0.5 + between(draws[:, 2:], -1, 1) * play.unsqueeze(1)
        ) * size  # [B, 2] of the window, in the view
        cosine, sine = torch.cos(angle) * side, torch.sin(angle) * side
        zero, one = torch.zeros_like(side), torch.ones_like(side)
        half = size / 2
        matrix = torch.stack(
            [
                torch.stack([cosine, sine, centre[:, 0] - half * (cosine + sine)], dim=1),
                torch.stack([-sine, cosine, centre[:, 1] - half * (cosine - sine)], dim=1),
                torch.stack([zero, zero, one], dim=1),
            ],
            dim=1,
        )
        return Warp(matrix.unsqueeze(1), torch.ones_like(side, dtype=torch.bool), fill=None)

"""What an image looks like before anything is learnt: its outlines, and the images of its class that have the like.

Histograms of oriented gradients (HOG) of a small copy of the image, their principal axes scaled to count more alike. An
image is looked at in several ways: moved a little, in a mirror, turned. Two images are as similar as each of them, the
way that suits best, is to the other as it is, on average of both. The nearest of every image are found once, before the
first step, and relations are made from these lists.

An encoder that starts from random weights tells kinds apart only after a while, and relations made from its keys are
worth little until then; neighbours by outlines are there from the first step on, and cost about a millisecond an image
(docs/performance.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, avg_pool2d, grid_sample, normalize, pad

from maskcon import transforms
from maskcon.methods.neighbour_lists import NeighbourLists, nearest_in

SIDE = 32  # pixels of the small copy
CELL, BINS = 3, 12  # histograms of windows of 2 x 2 cells, a cell apart; a bin is 30 degrees wide
AXES = 128  # principal axes that are kept
FLOOR = 0.1  # of the largest variance, added to each: axes of noise are not blown up
STRAY = 2  # pixels by which an image is also looked at to its sides: things seldom lie in the very same place
SHIFTS = ((0, 0), (STRAY, 0), (-STRAY, 0), (0, STRAY), (0, -STRAY))  # pixels to the right, pixels down
TURN = 1.2  # times what views turn images by: how far to either side an image is also looked at turned
FITTED_ON = 4096  # images that the axes are found from
BATCH = 512
LARGEST_PART = (
    20_000  # images of a class that are compared with each other; a larger class is dealt out into parts
)

LISTED_IN_BANK, MOST_LISTED = 40, 512  # neighbours of an image that a bank should hold; that are kept at most

# From row numbers to images and their valid sizes: `engine.feed.Feed.take`.
Take = Callable[[Tensor], tuple[Tensor, Tensor | None]]


def oriented_gradients(images: Tensor, shifts: Sequence[tuple[int, int]] = SHIFTS[:1]) -> Tensor:
    """Histograms of the directions in which grey values rise, weighed by how steeply: ``[B, S, BINS, H', W']``.

    Args:
        images: ``[B, C, H, W]`` in [0, 1], sides of 2 `CELL` at least.
        shifts: S times by how many pixels to the right and down the windows of the histograms are moved; beyond an
            image's border nothing rises.

    A gradient between two bins is shared by both. All histograms of an image together have the length 1 before their
    roots are taken, which keeps a few strong edges from being all that counts; an even image has none. The windows lie
    in the middle: where cells do not fill a side, the pixels left over are at its two ends.

    >>> rising = torch.linspace(0, 1, 6).expand(1, 1, 6, 6)  # to the right: direction 0
    >>> [round(value, 3) for value in oriented_gradients(rising).flatten().tolist()]
    [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    directions = _directions(images)  # [B, BINS, H, W]
    most = max(abs(pixels) for shift in shifts for pixels in shift)
    padded = pad(directions, (most, most, most, most))
    begin, size = zip(*(_windowed(side) for side in directions.shape[2:]), strict=True)
    seen = []
    for right, down in shifts:
        top, left = most + begin[0] + down, most + begin[1] + right
        seen.append(_windows(padded[:, :, top : top + size[0], left : left + size[1]]))
    return torch.stack(seen, dim=1)


def _windowed(side: int) -> tuple[int, int]:
    """Where on a side the first window begins, and how many pixels all windows cover.

    >>> _windowed(32)
    (1, 30)
    """
    left_over = (side - 2 * CELL) % CELL
    return left_over // 2, side - left_over


def _windows(directions: Tensor) -> Tensor:
    """Root histograms ``[B, BINS, H', W']`` of directions ``[B, BINS, H, W]``."""
    cells = avg_pool2d(avg_pool2d(directions, CELL), 2, 1)  # in two steps: each pixel is read once
    length = cells.flatten(1).norm(dim=1).clamp_min(1e-6)
    shares: Tensor = cells / length[:, None, None, None]
    return shares.sqrt_()


def _directions(images: Tensor) -> Tensor:
    """How steeply grey values rise at each pixel of ``[B, C, H, W]``, in the bins of where to: ``[B, BINS, H, W]``."""
    grey = pad(_grey(images), (1, 1, 1, 1), mode="replicate")
    right = grey[..., 1:-1, 2:] - grey[..., 1:-1, :-2]  # [B, 1, H, W]
    down = grey[..., 2:, 1:-1] - grey[..., :-2, 1:-1]
    steep = torch.hypot(right, down)
    place = torch.atan2(down, right).div_(2 * math.pi / BINS).remainder_(BINS)  # in bins
    below = place.floor()
    above_share = place.sub_(below).mul_(steep)  # what goes to the bin above
    number = below.long().remainder_(BINS)  # a place may round up to BINS
    bins = steep.new_zeros(len(steep), BINS, *steep.shape[2:])
    bins.scatter_(1, number, steep - above_share)
    return bins.scatter_(1, (number + 1).remainder_(BINS), above_share)


def _grey(images: Tensor) -> Tensor:
    """``[B, 1, H, W]`` of ``[B, C, H, W]``."""
    return images.float().mean(1, keepdim=True)


def mirrored(histograms: Tensor) -> Tensor:
    """The histograms ``[..., BINS, H', W']`` of the images seen in a mirror, left and right exchanged."""
    exchanged = [(BINS // 2 - number) % BINS for number in range(BINS)]  # right becomes left, down stays
    return histograms.flip(-1)[..., exchanged, :, :]


def turned(images: Tensor, degrees: float) -> Tensor:
    """Images ``[B, C, H, W]`` turned around their middle; what comes in from outside is the nearest pixel's."""
    if degrees == 0:
        return images
    sine, cosine = math.sin(math.radians(degrees)), math.cos(math.radians(degrees))
    around = images.new_tensor([[cosine, -sine, 0.0], [sine, cosine, 0.0]]).expand(len(images), 2, 3)
    grid = affine_grid(around, list(images.shape), align_corners=False)
    return grid_sample(images, grid, padding_mode="border", align_corners=False)


@dataclass(frozen=True)
class Axes:
    """Principal axes of some histograms, each divided by its deviation and a little more."""

    mean: Tensor  # [F]
    matrix: Tensor  # [F, A]

    @classmethod
    def of(cls, histograms: Tensor) -> Axes:
        """The leading `AXES` of histograms ``[N, F]``; those along which nothing varies count nothing."""
        mean = histograms.mean(0)
        centred = (histograms - mean).cpu().double()  # not every device has doubles
        variances, axes = torch.linalg.eigh(centred.T @ centred / len(centred))
        variances, axes = variances.flip(0)[:AXES], axes.flip(1)[:, :AXES]
        largest = variances[0].clamp_min(1e-12)  # images without any difference have none
        scale = (variances.clamp_min(0) + FLOOR * largest).rsqrt() * (variances > 1e-6 * largest)
        return cls(mean, (axes * scale).float().to(histograms.device))

    def __call__(self, histograms: Tensor) -> Tensor:
        """Unit vectors ``[..., A]`` of histograms ``[..., F]``."""
        return normalize((histograms - self.mean) @ self.matrix, dim=-1)


@dataclass(frozen=True)
class Looks:
    """The ways an image is looked at: moved by each of `SHIFTS`, turned or not, in a mirror or not."""

    mirror: bool = False
    turn: float = 0.0  # degrees to either side

    def histograms(self, images: Tensor) -> Tensor:
        """Of images ``[B, C, H, W]`` by all looks, the first being the image as it is: ``[B, V, BINS, H', W']``."""
        grey = _grey(images)
        angles = (0.0, self.turn, -self.turn) if self.turn else (0.0,)
        seen = torch.cat([oriented_gradients(turned(grey, angle), SHIFTS) for angle in angles], dim=1)
        return torch.cat([seen, mirrored(seen)], dim=1) if self.mirror else seen


@dataclass(frozen=True)
class Outlines:
    """Vectors of all images as they are, and of every image those that are nearest to it."""

    vectors: Tensor  # [N, A], float16 unit rows
    neighbours: NeighbourLists


def outlines(
    take: Take,
    groups: Tensor,
    *,
    listed: int,
    looks: Looks,
    progress: Callable[[int, int], None],
) -> Outlines:
    """Outlines of images 0 .. N - 1, where the images are.

    Args:
        take: the images of some rows, uint8 ``[B, C, H, W]``, and their valid sizes.
        groups: ``[N]``; neighbours are looked for among the images of the own group.
        listed: how many nearest of each image are kept, itself among them.
        looks: the ways to look at an image; views tell which of them matter.
        progress: told how many images of how many are done.
    """
    count = len(groups)

    def small(rows: Tensor) -> Tensor:
        images, sizes = take(rows)
        return transforms.test_view(images, size=SIDE, sizes=sizes)

    fitted = torch.arange(count)[:: -(-count // FITTED_ON)]  # evenly spread
    first = [oriented_gradients(small(rows)).flatten(1) for rows in torch.split(fitted, BATCH)]
    axes = Axes.of(torch.cat(first))
    lists = NeighbourLists.empty(count, listed, device=axes.mean.device)
    vectors = torch.empty(count, axes.matrix.shape[1], dtype=torch.half, device=axes.mean.device)
    done = 0  # images of the parts before

    def tell(share: float) -> None:
        """How much of a part is done: to look at its images is the first half, to compare them the second."""
        progress(done + int(share * len(members)), count)

    for members in _parts(groups):
        each, seen = [], 0
        for rows in torch.split(members, BATCH):
            each.append(axes(looks.histograms(small(rows)).flatten(2)).half())  # [b, V, A]
            seen += len(rows)
            tell(seen / len(members) / 2)
        of_part = torch.cat(each)
        vectors[members.to(vectors.device)] = of_part[:, 0]
        lists.put(members, *nearest_in(of_part, listed, lambda share: tell(0.5 + share / 2)))
        done += len(members)
    return Outlines(vectors, lists)


def listed(images: int, bank_size: int) -> int:
    """How many neighbours of an image to keep, itself among them, so that a bank holds enough of them.

    >>> listed(6000, 2048), listed(1_000_000, 8192), listed(100, 2048)
    (119, 512, 41)
    """
    return min(MOST_LISTED, 1 + math.ceil(LISTED_IN_BANK * max(1.0, images / bank_size)))


def _parts(groups: Tensor) -> list[Tensor]:
    """Rows ``[n]`` of images that are compared with each other: a group, or a part of one too large."""
    parts = []
    for group in torch.unique(groups):
        members = (groups == group).nonzero().squeeze(1).cpu()
        count = -(-len(members) // LARGEST_PART)
        parts += [members[first::count] for first in range(count)]
    return parts

"""What an image looks like before anything is learnt: its outlines, as vectors to be compared by their cosine.

Histograms of oriented gradients (HOG) of a small copy of the image, their principal axes scaled to count more alike.
An encoder that starts from random weights tells kinds apart only after a while, and relations made from its keys are
worth little until then; the neighbours by outlines are there from the first step on, and cost a fraction of a
millisecond an image, once (docs/performance.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from maskcon import views

SIDE = 32  # pixels of the small copy
CELL, BINS = 4, 8  # histograms of windows of 2 x 2 cells, a cell apart; a bin is 45 degrees wide
AXES = 128  # principal axes that are kept
FLOOR = 0.1  # of the largest variance, added to each: axes of noise are not blown up
STRAY = 2  # pixels by which an image is also looked at to its sides: things seldom lie in the very same place
SHIFTS = ((0, 0), (STRAY, 0), (-STRAY, 0), (0, STRAY), (0, -STRAY))  # pixels to the right, pixels down
FITTED_ON = 10_000  # images that the axes are found from
BATCH = 512

# From row numbers to images and their valid sizes: `engine.feed.Feed.take`.
Take = Callable[[Tensor], tuple[Tensor, Tensor | None]]


def oriented_gradients(images: Tensor, shifts: Sequence[tuple[int, int]] = SHIFTS[:1]) -> Tensor:
    """Histograms of the directions in which grey values rise, weighed by how steeply: ``[B, S, BINS, H', W']``.

    Args:
        images: ``[B, C, H, W]`` in [0, 1], sides of 2 `CELL` at least.
        shifts: S times by how many pixels to the right and down the windows of the histograms are moved; beyond an
            image's border nothing rises.

    A gradient between two bins is shared by both. All histograms of an image together have the length 1 before their
    roots are taken, which keeps a few strong edges from being all that counts; an even image has none.

    >>> rising = torch.linspace(0, 1, 8).expand(1, 1, 8, 8)  # to the right: direction 0
    >>> oriented_gradients(rising).flatten().tolist()
    [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    directions = _directions(images)  # [B, BINS, H, W]
    height, width = directions.shape[2:]
    most = max(abs(pixels) for shift in shifts for pixels in shift)
    padded = torch.nn.functional.pad(directions, (most, most, most, most))
    return torch.stack(
        [
            _windows(padded[:, :, most + down :, most + right :][:, :, :height, :width])
            for right, down in shifts
        ],
        dim=1,
    )


def _windows(directions: Tensor) -> Tensor:
    """Root histograms ``[B, BINS, H', W']`` of directions ``[B, BINS, H, W]``."""
    cells = torch.nn.functional.avg_pool2d(directions, 2 * CELL, CELL)
    length = cells.flatten(1).norm(dim=1).clamp_min(1e-6)
    shares: Tensor = cells / length[:, None, None, None]
    return shares.sqrt_()


def _directions(images: Tensor) -> Tensor:
    """How steeply grey values rise at each pixel of ``[B, C, H, W]``, in the bins of where to: ``[B, BINS, H, W]``."""
    grey = torch.nn.functional.pad(images.float().mean(1, keepdim=True), (1, 1, 1, 1), mode="replicate")
    right = grey[..., 1:-1, 2:] - grey[..., 1:-1, :-2]  # [B, 1, H, W]
    down = grey[..., 2:, 1:-1] - grey[..., :-2, 1:-1]
    place = torch.atan2(down, right).div_(2 * math.pi / BINS).remainder_(BINS)  # in bins
    centres = torch.arange(BINS, device=place.device).view(1, BINS, 1, 1)
    away = ((place - centres + BINS / 2).remainder_(BINS) - BINS / 2).abs_()  # bins, the shorter way round
    bins: Tensor = (1 - away).clamp_min_(0) * torch.hypot(right, down)
    return bins


def mirrored(histograms: Tensor) -> Tensor:
    """The histograms ``[..., BINS, H', W']`` of the images seen in a mirror, left and right exchanged."""
    exchanged = [(BINS // 2 - number) % BINS for number in range(BINS)]  # right becomes left, down stays
    return histograms.flip(-1)[..., exchanged, :, :]


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
        return torch.nn.functional.normalize((histograms - self.mean) @ self.matrix, dim=-1)


def outlines(take: Take, count: int, *, mirror: bool, progress: Callable[[int, int], None]) -> Tensor:
    """Vectors of the outlines of images 0 .. count - 1, float16 ``[N, V, A]``, where the images are.

    Args:
        take: the images of some rows, uint8 ``[B, C, H, W]``, and their valid sizes.
        mirror: also of each image in a mirror, for views that show both.
        progress: told how many images of how many are done.

    The first vector is that of the image as it is; the others see it by each of `SHIFTS`, and in a mirror all over
    again: V = 5 or 10. Two images are as similar as the most similar vector of one is to the first of the other.
    """
    every = torch.arange(count)
    fitted = every[:: -(-count // FITTED_ON)]  # evenly spread
    first = [_histograms(take, rows) for rows in torch.split(fitted, BATCH)]
    axes = Axes.of(torch.cat([seen[:, 0] for seen in first]).flatten(1))
    vectors = []
    for number, rows in enumerate(torch.split(every, BATCH)):
        seen = first[number] if len(fitted) == count else _histograms(take, rows)
        each = torch.cat([seen, mirrored(seen)], dim=1) if mirror else seen
        vectors.append(axes(each.flatten(2)).half())
        progress(int(rows[-1]) + 1, count)
    return torch.cat(vectors)


def _histograms(take: Take, rows: Tensor) -> Tensor:
    images, sizes = take(rows)
    return oriented_gradients(views.test_view(images, size=SIDE, sizes=sizes), SHIFTS)

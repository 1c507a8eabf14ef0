"""What an image looks like before anything is learnt: its outlines, as vectors to be compared by their cosine.

Histograms of oriented gradients (HOG) of a small copy of the image, their principal axes scaled to count more alike.
An encoder that starts from random weights tells kinds apart only after a while, and relations made from its keys are
worth little until then; the neighbours by outlines are there from the first step on, and cost a fraction of a
millisecond an image, once (docs/performance.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from maskcon import views

SIDE = 32  # pixels of the small copy
CELL, BINS = 4, 8  # histograms of windows of 2 x 2 cells, a cell apart; a bin is 45 degrees wide
AXES = 128  # principal axes that are kept
FLOOR = 0.1  # of the largest variance, added to each: axes of noise are not blown up
FITTED_ON = 10_000  # images that the axes are found from
BATCH = 512

# From row numbers to images and their valid sizes: `engine.feed.Feed.take`.
Take = Callable[[Tensor], tuple[Tensor, Tensor | None]]


def oriented_gradients(images: Tensor) -> Tensor:
    """Histograms of the directions in which grey values rise, weighed by how steeply: ``[B, BINS, H', W']``.

    Args:
        images: ``[B, C, H, W]`` in [0, 1], sides of 2 `CELL` at least.

    A gradient between two bins is shared by both. All histograms of an image together have the length 1 before their
    roots are taken, which keeps a few strong edges from being all that counts; an even image has none.

    >>> rising = torch.linspace(0, 1, 8).expand(1, 1, 8, 8)  # to the right: direction 0
    >>> oriented_gradients(rising).flatten().tolist()
    [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    grey = torch.nn.functional.pad(images.float().mean(1, keepdim=True), (1, 1, 1, 1), mode="replicate")
    right = grey[..., 1:-1, 2:] - grey[..., 1:-1, :-2]  # [B, 1, H, W]
    down = grey[..., 2:, 1:-1] - grey[..., :-2, 1:-1]
    place = torch.atan2(down, right).div_(2 * math.pi / BINS).remainder_(BINS)  # in bins
    centres = torch.arange(BINS, device=place.device).view(1, BINS, 1, 1)
    away = ((place - centres + BINS / 2).remainder_(BINS) - BINS / 2).abs_()  # bins, the shorter way round
    bins = (1 - away).clamp_min_(0) * torch.hypot(right, down)  # [B, BINS, H, W]
    cells = torch.nn.functional.avg_pool2d(bins, 2 * CELL, CELL)
    length = cells.flatten(1).norm(dim=1).clamp_min(1e-6)
    shares: Tensor = cells / length[:, None, None, None]
    return shares.sqrt_()


def mirrored(histograms: Tensor) -> Tensor:
    """The histograms of the images seen in a mirror, left and right exchanged: ``[B, BINS, H', W']``."""
    exchanged = [(BINS // 2 - number) % BINS for number in range(BINS)]  # right becomes left, down stays
    return histograms.flip(3)[:, exchanged]


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
        """Unit vectors ``[N, A]`` of histograms ``[N, F]``."""
        return torch.nn.functional.normalize((histograms - self.mean) @ self.matrix, dim=1)


def outlines(take: Take, count: int, *, mirror: bool, progress: Callable[[int, int], None]) -> Tensor:
    """Vectors of the outlines of images 0 .. count - 1, float16 ``[N, V, A]``, where the images are.

    Args:
        take: the images of some rows, uint8 ``[B, C, H, W]``, and their valid sizes.
        mirror: also of each image in a mirror (V = 2, else 1), for views that show both.
        progress: told how many images of how many are done.
    """
    every = torch.arange(count)
    fitted = every[:: -(-count // FITTED_ON)]  # evenly spread
    first = [_histograms(take, rows) for rows in torch.split(fitted, BATCH)]
    axes = Axes.of(torch.cat(first).flatten(1))
    vectors = []
    for number, rows in enumerate(torch.split(every, BATCH)):
        plain = first[number] if len(fitted) == count else _histograms(take, rows)
        seen = [plain, mirrored(plain)] if mirror else [plain]
        vectors.append(torch.stack([axes(each.flatten(1)) for each in seen], dim=1).half())
        progress(int(rows[-1]) + 1, count)
    return torch.cat(vectors)


def _histograms(take: Take, rows: Tensor) -> Tensor:
    images, sizes = take(rows)
    return oriented_gradients(views.test_view(images, size=SIDE, sizes=sizes))

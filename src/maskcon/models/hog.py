"""HOG features of training images, and the nearest neighbours within each class.

Histograms of oriented gradients (HOG) of a small copy of the image, partially whitened by PCA. Each image has several
variants: shifted, mirrored, turned. `methods.neighbour_lists.nearest_in` defines the similarity of two images.
Neighbours are computed once, before the first step; relations use these lists.

Keys of a randomly initialised encoder give poor relations at first; HOG neighbours are usable from the first step and
cost about a millisecond per image (docs/performance.md).
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

SIDE = 32  # pixels per side of the small copy
CELL, BINS = 3, 12  # windows of 2 x 2 cells, one cell apart; a bin is 30 degrees wide
AXES = 128  # principal axes kept
FLOOR = 0.1  # share of the largest variance added to each, so that noise is not amplified
STRAY = 2  # pixels of the shifted variants: objects are rarely in exactly the same place
SHIFTS = ((0, 0), (STRAY, 0), (-STRAY, 0), (0, STRAY), (0, -STRAY))  # pixels to the right, pixels down
TURN = 1.2  # angle of the turned variants, as a multiple of the rotation of the views
FITTED_ON = 4096  # images for the PCA
BATCH = 512
LARGEST_PART = 20_000  # images of a class that are compared with each other; larger classes are split

LISTED_IN_BANK, MOST_LISTED = 40, 512  # wanted neighbours of an image in the bank; largest length of a list

# From row numbers to images and their valid sizes: `retrieval.encode.Feed.take`.
Take = Callable[[Tensor], tuple[Tensor, Tensor | None]]


def oriented_gradients(images: Tensor, shifts: Sequence[tuple[int, int]] = SHIFTS[:1]) -> Tensor:
    """Compute root histograms of gradient directions, ``[B, S, BINS, H', W']``.

    Args:
        images: ``[B, C, H, W]`` in [0, 1], sides of 2 `CELL` at least.
        shifts: S shifts (right, down) of the windows in pixels; outside the image gradients are 0.

    Gradients are weighted by magnitude, and split between the two nearest bins. All histograms of an image together
    have length 1 before the root, which limits the weight of a few strong edges; a uniform image has none. Windows are
    centred: pixels that do not fill a cell are left at both ends of a side.

    >>> rising = torch.linspace(0, 1, 6).expand(1, 1, 6, 6)  # to the right: direction 0
    >>> [round(value, 3) for value in oriented_gradients(rising).flatten().tolist()]
    [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    directions = _directions(images)  # [B, BINS, H, W]
    most = max(abs(pixels) for shift in shifts for pixels in shift)
    padded = pad(directions, (most, most, most, most))
    begin, size = zip(*(_window_span(side) for side in directions.shape[2:]), strict=True)
    histograms = []
    for right, down in shifts:
        top, left = most + begin[0] + down, most + begin[1] + right
        histograms.append(_windows(padded[:, :, top : top + size[0], left : left + size[1]]))
    return torch.stack(histograms, dim=1)


def _window_span(side: int) -> tuple[int, int]:
    """Return the start of the first window on a side, and the pixels in all windows.

    >>> _window_span(32)
    (1, 30)
    """
    left_over = (side - 2 * CELL) % CELL
    return left_over // 2, side - left_over


def _windows(directions: Tensor) -> Tensor:
    """Return root histograms ``[B, BINS, H', W']`` of directions ``[B, BINS, H, W]``."""
    cells = avg_pool2d(avg_pool2d(directions, CELL), 2, 1)  # in two steps: each pixel is read once
    length = cells.flatten(1).norm(dim=1).clamp_min(1e-6)
    shares: Tensor = cells / length[:, None, None, None]
    return shares.sqrt_()


def _directions(images: Tensor) -> Tensor:
    """Return gradient magnitudes by bin, ``[B, BINS, H, W]``."""
    grey = pad(_grey(images), (1, 1, 1, 1), mode="replicate")
    right = grey[..., 1:-1, 2:] - grey[..., 1:-1, :-2]  # [B, 1, H, W]
    down = grey[..., 2:, 1:-1] - grey[..., :-2, 1:-1]
    steep = torch.hypot(right, down)
    place = torch.atan2(down, right).div_(2 * math.pi / BINS).remainder_(BINS)  # in bins
    below = place.floor()
    above_share = place.sub_(below).mul_(steep)  # goes to the bin above
    number = below.long().remainder_(BINS)  # a place may round up to BINS
    bins = steep.new_zeros(len(steep), BINS, *steep.shape[2:])
    bins.scatter_(1, number, steep - above_share)
    return bins.scatter_(1, (number + 1).remainder_(BINS), above_share)


def _grey(images: Tensor) -> Tensor:
    """Average the channels of ``[B, C, H, W]``: ``[B, 1, H, W]``."""
    return images.float().mean(1, keepdim=True)


def mirrored(histograms: Tensor) -> Tensor:
    """Return the histograms ``[..., BINS, H', W']`` of the mirrored images."""
    exchanged = [(BINS // 2 - number) % BINS for number in range(BINS)]  # right becomes left, down stays
    return histograms.flip(-1)[..., exchanged, :, :]


def turned(images: Tensor, degrees: float) -> Tensor:
    """Rotate images ``[B, C, H, W]`` about their centre; edges are repeated."""
    if degrees == 0:
        return images
    sine, cosine = math.sin(math.radians(degrees)), math.cos(math.radians(degrees))
    around = images.new_tensor([[cosine, -sine, 0.0], [sine, cosine, 0.0]]).expand(len(images), 2, 3)
    grid = affine_grid(around, list(images.shape), align_corners=False)
    return grid_sample(images, grid, padding_mode="border", align_corners=False)


@dataclass(frozen=True)
class Axes:
    """Partial whitening: principal axes / sqrt(variance + FLOOR * largest variance)."""

    mean: Tensor  # [F]
    matrix: Tensor  # [F, A]

    @classmethod
    def of(cls, histograms: Tensor) -> Axes:
        """Fit the leading `AXES` of histograms ``[N, F]``; without variance, weight 0."""
        mean = histograms.mean(0)
        centred = (histograms - mean).cpu().double()  # not every device has float64
        variances, axes = torch.linalg.eigh(centred.T @ centred / len(centred))
        variances, axes = variances.flip(0)[:AXES], axes.flip(1)[:, :AXES]
        largest = variances[0].clamp_min(1e-12)  # 0 for identical images
        scale = (variances.clamp_min(0) + FLOOR * largest).rsqrt() * (variances > 1e-6 * largest)
        return cls(mean, (axes * scale).float().to(histograms.device))

    def __call__(self, histograms: Tensor) -> Tensor:
        """Map histograms ``[..., F]`` to unit vectors ``[..., A]``."""
        return normalize((histograms - self.mean) @ self.matrix, dim=-1)


@dataclass(frozen=True)
class Variants:
    """Variants of an image to compare: `SHIFTS`, optionally turned and mirrored."""

    mirror: bool = False
    turn: float = 0.0  # degrees to either side

    def histograms(self, images: Tensor) -> Tensor:
        """Return histograms of all variants, unchanged first: ``[B, V, BINS, H', W']``.

        images: ``[B, C, H, W]``.
        """
        grey = _grey(images)
        angles = (0.0, self.turn, -self.turn) if self.turn else (0.0,)
        histograms = torch.cat([oriented_gradients(turned(grey, angle), SHIFTS) for angle in angles], dim=1)
        return torch.cat([histograms, mirrored(histograms)], dim=1) if self.mirror else histograms


@dataclass(frozen=True)
class HogNeighbours:
    """HOG vectors of all images, and the nearest neighbours of each."""

    vectors: Tensor  # [N, A], float16 unit rows
    neighbours: NeighbourLists


def hog_neighbours(
    take: Take,
    groups: Tensor,
    *,
    length: int,
    variants: Variants,
    progress: Callable[[int, int], None],
) -> HogNeighbours:
    """Compute HOG vectors and neighbour lists of N images, on their device.

    Args:
        take: returns images of some rows, uint8 ``[B, C, H, W]``, and their valid sizes.
        groups: ``[N]``; neighbours are searched within the group of an image.
        length: of each list, the image itself included.
        variants: variants to compare; they should match the views.
        progress: called with the number of images done and in all.
    """
    count = len(groups)

    def small(rows: Tensor) -> Tensor:
        images, sizes = take(rows)
        return transforms.test_view(images, size=SIDE, sizes=sizes)

    fitted = torch.arange(count)[:: -(-count // FITTED_ON)]  # evenly spread
    first = [oriented_gradients(small(rows)).flatten(1) for rows in torch.split(fitted, BATCH)]
    axes = Axes.of(torch.cat(first))
    lists = NeighbourLists.empty(count, length, device=axes.mean.device)
    vectors = torch.empty(count, axes.matrix.shape[1], dtype=torch.half, device=axes.mean.device)
    done = 0  # images of the parts before

    def report(share: float) -> None:
        """Report progress in a part: its vectors are one half, comparing them the other."""
        progress(done + int(share * len(members)), count)

    for members in _parts(groups):
        batches, images = [], 0
        for rows in torch.split(members, BATCH):
            batches.append(axes(variants.histograms(small(rows)).flatten(2)).half())  # [b, V, A]
            images += len(rows)
            report(images / len(members) / 2)
        of_part = torch.cat(batches)  # [n, V, A]
        vectors[members.to(vectors.device)] = of_part[:, 0]
        lists.put(members, *nearest_in(of_part, length, lambda share: report(0.5 + share / 2)))
        done += len(members)
    return HogNeighbours(vectors, lists)


def list_length(images: int, bank_size: int) -> int:
    """Return the length of a neighbour list of which a bank holds enough images.

    The image itself is included.

    >>> list_length(6000, 2048), list_length(1_000_000, 8192), list_length(100, 2048)
    (119, 512, 41)
    """
    return min(MOST_LISTED, 1 + math.ceil(LISTED_IN_BANK * max(1.0, images / bank_size)))


def _parts(groups: Tensor) -> list[Tensor]:
    """Return rows ``[n]`` of images to compare: each group, or parts of a large one."""
    parts = []
    for group in torch.unique(groups):
        members = (groups == group).nonzero().squeeze(1).cpu()
        count = -(-len(members) // LARGEST_PART)
        parts += [members[first::count] for first in range(count)]
    return parts

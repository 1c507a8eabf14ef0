"""Precomputed nearest neighbours of every image, in place of the cosine of keys.

nearest_in(variants, length)     nearest neighbours within one group of images      -> rows and similarities
NeighbourLists                   those of all images                                [N, k]
NeighbourLists.among(rows, ..)   those of a batch that are in the bank              -> Neighbourhood
Neighbourhood.table()            their similarities d for the relations             [B, K]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

TILE = 1024  # images per side of a tile of comparisons


class Neighbourhood(NamedTuple):
    """Entries of a bank that are listed neighbours of a batch."""

    columns: Tensor  # [B, k] column of each listed image in the bank; K if it is not there
    similarity: Tensor  # [B, k]
    stands_for: Tensor  # [K] the column of the same image that `columns` uses

    def rows(self, part: slice) -> Neighbourhood:
        """Return the neighbourhood of some rows of the batch."""
        return Neighbourhood(self.columns[part], self.similarity[part], self.stands_for)

    def table(self) -> Tensor:
        """Return similarities to the bank, float32 ``[B, K]``; -inf if not listed."""
        table = self.similarity.new_full(
            (len(self.columns), 1 + len(self.stands_for)), -math.inf, dtype=torch.float32
        )
        table.scatter_(1, self.columns, self.similarity.float())
        return table[:, self.stands_for]


@dataclass(frozen=True)
class NeighbourLists:
    """Row numbers of the nearest images of every image, including itself.

    Example: images 0 and 1 of three are similar; a bank has keys of images 1, 2 and 1.

        >>> lists = NeighbourLists.empty(3, 2)
        >>> lists.put(torch.tensor([0, 1]), torch.tensor([[0, 1], [1, 0]]), torch.tensor([[1.0, 0.5], [1.0, 0.5]]))
        >>> lists.among(torch.tensor([0, 2]), torch.tensor([1, 2, 1])).table()
        tensor([[0.5000,   -inf, 0.5000],
                [  -inf,   -inf,   -inf]])
    """

    images: Tensor  # int32 [N, k]; padded with N
    similarity: Tensor  # float16 [N, k]; padded with -inf

    @classmethod
    def empty(cls, count: int, length: int, *, device: torch.device | str | None = None) -> NeighbourLists:
        """Return empty lists of a length for `count` images."""
        return cls(
            torch.full((count, length), count, dtype=torch.int32, device=device),
            torch.full((count, length), -math.inf, dtype=torch.half, device=device),
        )

    def put(self, members: Tensor, nearest: Tensor, similarity: Tensor) -> None:
        """Set the lists of images ``[n]``.

        nearest: ``[n, m]``, m <= k, as positions in `members`.
        """
        members = members.to(self.images.device)
        self.images[members, : nearest.shape[1]] = members[nearest].int()
        self.similarity[members, : nearest.shape[1]] = similarity.to(self.similarity.dtype)

    def among(self, rows: Tensor, entries: Tensor) -> Neighbourhood:
        """Find the neighbours of images ``[B]`` among bank entries ``[K]``, all by row."""
        count, bank = len(self.images), len(entries)
        column = torch.full((count + 1,), bank, device=entries.device)  # per image; the last is the padding
        column[entries] = torch.arange(bank, device=entries.device)  # of several keys of one image, any one
        return Neighbourhood(column[self.images[rows].long()], self.similarity[rows], column[entries])


def nearest_in(
    variants: Tensor, length: int, progress: Callable[[float], None] = lambda _share: None
) -> tuple[Tensor, Tensor]:
    """Find the nearest images within a group, nearest first.

        s(a, b) = (max_v <v(a), b> + max_v <v(b), a>) / 2

    Args:
        variants: unit vectors ``[n, V, A]`` of V variants v (shifted, turned, mirrored) of n images; the first is the
            image unchanged.
        length: m, at most n.
        progress: called with the share of the work that is done.

    Returns:
        Positions and similarities, ``[n, m]`` each.

    Every pair is compared once, in tiles of `TILE` by `TILE` images.

    >>> east, north = [1.0, 0.0], [0.0, 1.0]
    >>> nearest_in(torch.tensor([[east, east], [north, north], [north, east]]), length=2)[1]
    tensor([[1.0000, 0.5000],
            [1.0000, 1.0000],
            [1.0000, 1.0000]])
    """
    count = len(variants)
    best: dict[int, tuple[Tensor, Tensor]] = {}  # similarities and positions, by first row of the tile

    def merge(rows: int, columns: int, similarity: Tensor) -> None:
        """Merge a tile ``[r, c]`` into the best of its rows."""
        places = torch.arange(columns, columns + similarity.shape[1], device=variants.device).expand_as(
            similarity
        )
        if rows in best:
            similarity = torch.cat([best[rows][0], similarity], dim=1)
            places = torch.cat([best[rows][1], places], dim=1)
        largest, chosen = similarity.topk(min(length, similarity.shape[1]), dim=1)
        best[rows] = largest, places.gather(1, chosen)

    for first in range(0, count, TILE):
        one = variants[first : first + TILE].float()
        for second in range(first, count, TILE):
            other = one if second == first else variants[second : second + TILE].float()
            forth = _best(one, other)  # [r, c]
            back = forth if second == first else _best(other, one)  # [c, r]
            both = forth.add(back.T).div_(2)
            merge(first, second, both)
            if second != first:
                merge(second, first, both.T)
        left = max(0, count - first - TILE)
        progress(1 - (left / count) ** 2)
    blocks = [best[start] for start in sorted(best)]
    return torch.cat([places for _, places in blocks]), torch.cat([similarity for similarity, _ in blocks])


def _best(variants: Tensor, others: Tensor) -> Tensor:
    """Return max over v of <variants[:, v], others[:, 0]>, ``[r, c]``.

    variants, others: ``[r, V, A]`` and ``[c, V, A]``.
    """
    unchanged = others[:, 0].T.contiguous()  # [A, c]
    most = variants[:, 0] @ unchanged
    for variant in range(1, variants.shape[1]):
        torch.maximum(most, variants[:, variant] @ unchanged, out=most)
    return most

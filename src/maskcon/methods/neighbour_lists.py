"""Of every training image the most similar ones, found once: what relations compare by where it is not learnt.

nearest_in(looks, count)         who is nearest to whom in one group of images      -> rows and similarities
NeighbourLists                   those of all images                                [N, k]
NeighbourLists.among(rows, ..)   those of a batch that a bank has keys of           -> Neighbourhood
Neighbourhood.table()            their similarities, as relations read them         [B, K]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

TILE = 1024  # images that are compared with as many others at once


class Neighbourhood(NamedTuple):
    """Which entries of a bank are among the listed neighbours of a batch."""

    columns: Tensor  # [B, k] column of each listed image in the bank, K where it has none
    similarity: Tensor  # [B, k]
    stands_for: Tensor  # [K] the one column among those of the same image that `columns` names

    def rows(self, part: slice) -> Neighbourhood:
        """The same for some rows of the batch."""
        return Neighbourhood(self.columns[part], self.similarity[part], self.stands_for)

    def table(self) -> Tensor:
        """Similarities to the bank's entries, float32 ``[B, K]``; -inf of those that are not listed."""
        found = self.similarity.new_full(
            (len(self.columns), 1 + len(self.stands_for)), -math.inf, dtype=torch.float32
        )
        found.scatter_(1, self.columns, self.similarity.float())
        return found[:, self.stands_for]


@dataclass(frozen=True)
class NeighbourLists:
    """The nearest images of every image, itself among them, by their row numbers.

    Example: of images 0, 1 and 2, the first two are alike; a bank has keys of 1, 2 and, again, 1.

        >>> lists = NeighbourLists.empty(3, 2)
        >>> lists.put(torch.tensor([0, 1]), torch.tensor([[0, 1], [1, 0]]), torch.tensor([[1.0, 0.5], [1.0, 0.5]]))
        >>> lists.among(torch.tensor([0, 2]), torch.tensor([1, 2, 1])).table()
        tensor([[0.5000,   -inf, 0.5000],
                [  -inf,   -inf,   -inf]])
    """

    images: Tensor  # int32 [N, k]; N where there are fewer
    similarity: Tensor  # float16 [N, k]; -inf there

    @classmethod
    def empty(cls, count: int, listed: int, *, device: torch.device | str | None = None) -> NeighbourLists:
        """Lists of `count` images that have no neighbours yet."""
        return cls(
            torch.full((count, listed), count, dtype=torch.int32, device=device),
            torch.full((count, listed), -math.inf, dtype=torch.half, device=device),
        )

    def put(self, members: Tensor, nearest: Tensor, similarity: Tensor) -> None:
        """Take in the lists of some images ``[n]``: their nearest ``[n, m]`` as places in `members`, m <= k."""
        members = members.to(self.images.device)
        self.images[members, : nearest.shape[1]] = members[nearest].int()
        self.similarity[members, : nearest.shape[1]] = similarity.to(self.similarity.dtype)

    def among(self, asked: Tensor, entries: Tensor) -> Neighbourhood:
        """What the images `asked` ``[B]`` have for neighbours among a bank's `entries` ``[K]``, all by row numbers."""
        count, bank = len(self.images), len(entries)
        column = torch.full((count + 1,), bank, device=entries.device)  # of every image, and of none
        column[entries] = torch.arange(bank, device=entries.device)  # of several of one image, any one
        return Neighbourhood(column[self.images[asked].long()], self.similarity[asked], column[entries])


def nearest_in(
    looks: Tensor, listed: int, progress: Callable[[float], None] = lambda _share: None
) -> tuple[Tensor, Tensor]:
    """Who is nearest to whom, and how similar: places ``[n, m]`` and similarities ``[n, m]``, the nearest first.

    Args:
        looks: unit vectors ``[n, V, A]`` of n images, each looked at in V ways, the first being the image as it is.
        listed: m, or n if that is less.
        progress: told now and then which share of the work is done.

    One image seems as similar to another as the most similar of its looks is to the other as it is; the similarity of
    the two is the mean of how each seems to the other. Every pair is compared once, `TILE` by `TILE` images at a time.

    >>> east, north = [1.0, 0.0], [0.0, 1.0]
    >>> nearest_in(torch.tensor([[east, east], [north, north], [north, east]]), listed=2)[1]
    tensor([[1.0000, 0.5000],
            [1.0000, 1.0000],
            [1.0000, 1.0000]])
    """
    count = len(looks)
    best: dict[int, tuple[Tensor, Tensor]] = {}  # of the tile that begins there: similarities, places

    def take_in(rows: int, columns: int, similarity: Tensor) -> None:
        """Keep the best of what rows had and of a tile ``[r, c]``."""
        places = torch.arange(columns, columns + similarity.shape[1], device=looks.device).expand_as(
            similarity
        )
        if rows in best:
            similarity = torch.cat([best[rows][0], similarity], dim=1)
            places = torch.cat([best[rows][1], places], dim=1)
        kept, chosen = similarity.topk(min(listed, similarity.shape[1]), dim=1)
        best[rows] = kept, places.gather(1, chosen)

    for first in range(0, count, TILE):
        one = looks[first : first + TILE].float()
        for second in range(first, count, TILE):
            other = one if second == first else looks[second : second + TILE].float()
            seems = _seems(one, other)  # [r, c]
            seen = seems if second == first else _seems(other, one)  # [c, r]
            both = seems.add(seen.T).div_(2)
            take_in(first, second, both)
            if second != first:
                take_in(second, first, both.T)
        left = max(0, count - first - TILE)
        progress(1 - (left / count) ** 2)
    found = [best[start] for start in sorted(best)]
    return torch.cat([places for _, places in found]), torch.cat([similarity for similarity, _ in found])


def _seems(looks: Tensor, others: Tensor) -> Tensor:
    """How similar each of ``[r, V, A]``, the way that suits best, is to each of ``[c, V, A]`` as it is: ``[r, c]``."""
    as_they_are = others[:, 0].T.contiguous()  # [A, c]
    most = looks[:, 0] @ as_they_are
    for look in range(1, looks.shape[1]):
        torch.maximum(most, looks[:, look] @ as_they_are, out=most)
    return most

"""Recall@K, exact: does one of an image's K nearest neighbours share its label?

No list of neighbours is needed for it, only how many others stand before an image's nearest same-label one. So images
are put in the order of their labels and visited in pairs of blocks, twice: pairs that share a label give each image its
nearest match, then pairs of different labels are counted where they are nearer still. The similarity of i and j is that
of j and i: each block of similarities serves its rows and its columns, which halves the work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

import torch
from torch import Tensor

BLOCK_ROWS = 512  # similarities held at once: the square of it, 1 MB of float32, which a core's cache holds
KEPT_ELEMENTS = (
    1 << 25
)  # normalised embeddings up to 128 MB are kept, larger ones made again when they are met
NO_MATCH = 1 << 62  # a rank beyond every K

Progress = Callable[[int, int], None]  # pairs of blocks done, pairs in all


def recall_at_k(
    embeddings: Tensor, labels: Tensor, ks: Sequence[int] = (1, 2, 5, 10), *, progress: Progress | None = None
) -> dict[int, float]:
    """Share of images with a same-label image among their K nearest others, by cosine.

    Args:
        embeddings: ``[N, D]``, any floating type; normalised here.
        labels: ``[N]``.
        ks: the K to report, each >= 1.
        progress: called as progress(steps done, steps in all), because a million images take minutes.

    Returns:
        ``{k: share in 0..1}``. The image itself is left out by its position, so duplicates count as what they
        are: other images. Neighbours at exactly equal similarity come in the order of their positions.
        An image whose label nobody else has is a miss. Embeddings with NaN or Inf are refused.

    Memory beyond the embeddings stays below 256 MB: one normalised copy while that is small, some blocks of
    similarities, and six numbers an image.

    Example:
        >>> points = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
        >>> recall_at_k(points, torch.tensor([0, 0, 1, 1]), ks=(1,))
        {1: 1.0}
    """
    if not ks or min(ks) < 1:
        raise ValueError(f"{ks=} must be one or more numbers >= 1")
    if embeddings.ndim != 2 or labels.shape != embeddings.shape[:1]:
        raise ValueError(f"expected [N, D] and [N], got {tuple(embeddings.shape)} and {tuple(labels.shape)}")
    if len(embeddings) == 0:
        raise ValueError("recall needs at least one embedding")
    ranks = rank_of_first_match(embeddings, labels, limit=max(ks), progress=progress)
    return {k: (ranks < k).sum().item() / len(ranks) for k in ks}


@torch.no_grad()
def rank_of_first_match(
    embeddings: Tensor, labels: Tensor, limit: int, *, progress: Progress | None = None
) -> Tensor:
    """How many others stand before each image's nearest same-label neighbour, int64 ``[N]``.

    Ranks of `limit` and more are given as `NO_MATCH`. Recall@K is the share of ranks below K.
    """
    with torch.autocast(embeddings.device.type, enabled=False):  # half precision would tie what is not
        return _Ranking(embeddings, labels.to(embeddings.device), limit).ranks(progress)


class _Ranking:
    """All images in the order of their labels (`order`, ``[N]``), cut into blocks of nearly equal length.

    Equal, because the same two vectors should meet in products of the same shape: another shape may be summed in
    another order, and exact duplicates would no longer tie.
    """

    def __init__(self, embeddings: Tensor, labels: Tensor, limit: int) -> None:
        count = len(embeddings)
        self.embeddings, self.limit = embeddings, limit
        self.order = labels.argsort(stable=True)  # positions, rising within a label
        self.labels = labels[self.order]
        length = math.ceil(count / math.ceil(count / BLOCK_ROWS))
        self.blocks = [slice(start, min(start + length, count)) for start in range(0, count, length)]
        self.lowest = [self.labels[block.start].item() for block in self.blocks]
        self.highest = [self.labels[block.stop - 1].item() for block in self.blocks]
        self.best = torch.full((count,), -torch.inf, device=embeddings.device)  # nearest match's similarity
        self.first = torch.full_like(self.order, count)  # its position
        self.ahead = torch.zeros_like(self.order)  # how many stand before it
        self.kept: Tensor | None = None
        self._normalise()

    def ranks(self, progress: Progress | None) -> Tensor:
        total = 0
        if progress is not None:  # counted, not listed: a million images have two million pairs
            total = sum(1 for _ in chain(self._pairs_that_share_a_label(), self._pairs_of_other_labels()))
        done = 0
        for rows, columns in self._pairs_that_share_a_label():
            self._find_best(rows, columns)
            done += 1
            if progress is not None:
                progress(done, total)
        lonely = self.best == -torch.inf
        self.best[lonely] = torch.inf  # nothing will be found nearer
        self.ahead[lonely] = self.limit
        for rows, columns in self._pairs_of_other_labels():
            self._count_nearer(rows, columns)
            done += 1
            if progress is not None:
                progress(done, total)
        ranks = torch.empty_like(self.order)
        ranks[self.order] = torch.where(self.ahead < self.limit, self.ahead, NO_MATCH)
        return ranks

    def _pairs_that_share_a_label(self) -> Iterator[tuple[int, int]]:
        for rows in range(len(self.blocks)):
            for columns in range(rows, len(self.blocks)):
                if self.lowest[columns] > self.highest[rows]:
                    break
                yield rows, columns

    def _pairs_of_other_labels(self) -> Iterator[tuple[int, int]]:
        for rows in range(len(self.blocks)):
            for columns in range(rows, len(self.blocks)):
                if self.lowest[rows] < self.highest[columns]:  # else both hold one and the same label
                    yield rows, columns

    def _find_best(self, rows: int, columns: int) -> None:
        similarity = self._similarity(rows, columns).masked_fill_(~self._same(rows, columns), -torch.inf)
        if rows == columns:
            similarity.fill_diagonal_(-torch.inf)  # oneself, by position
        self._raise_best(similarity, rows, columns)
        if rows != columns:
            self._raise_best(similarity.T, columns, rows)

    def _raise_best(self, similarity: Tensor, rows: int, columns: int) -> None:
        """Each image meets its matches in the order of their positions, and the first of equal ones stays."""
        nearest, place = similarity.max(dim=1)  # the first of equal ones
        best, first = self.best[self.blocks[rows]], self.first[self.blocks[rows]]
        better = nearest > best
        best.copy_(torch.where(better, nearest, best))
        first.copy_(torch.where(better, self.order[self.blocks[columns]][place], first))

    def _count_nearer(self, rows: int, columns: int) -> None:
        similarity = self._similarity(rows, columns)
        if self.highest[rows] >= self.lowest[columns]:  # no match is nearer than the best one
            similarity.masked_fill_(self._same(rows, columns), -torch.inf)
        self._add_ahead(similarity, rows, columns)
        if rows != columns:
            self._add_ahead(similarity.T, columns, rows)

    def _add_ahead(self, similarity: Tensor, rows: int, columns: int) -> None:
        """Count who is nearer than the best match, or as near and earlier in position."""
        best, ahead = self.best[self.blocks[rows]], self.ahead[self.blocks[rows]]
        concerned = (
            (similarity.amax(dim=1) >= best).nonzero().squeeze(1)
        )  # most blocks are far from most images
        if len(concerned) == 0:
            return
        near, bound = similarity[concerned], best[concerned].unsqueeze(1)
        earlier = self.order[self.blocks[columns]] < self.first[self.blocks[rows]][concerned].unsqueeze(1)
        ahead[concerned] += ((near > bound) | ((near == bound) & earlier)).sum(dim=1)
        best[ahead >= self.limit] = torch.inf  # a miss at every K: no need to count on

    def _same(self, rows: int, columns: int) -> Tensor:
        return self.labels[self.blocks[rows]].unsqueeze(1) == self.labels[self.blocks[columns]]

    def _similarity(self, rows: int, columns: int) -> Tensor:
        return self._unit(rows) @ self._unit(columns).T

    def _unit(self, number: int) -> Tensor:
        """Normalised embeddings of a block."""
        block = self.blocks[number]
        if self.kept is not None:
            return self.kept[block]
        return torch.nn.functional.normalize(self.embeddings[self.order[block]].float(), dim=1)

    def _normalise(self) -> None:
        """Refuse what has no direction, and keep the normalised embeddings where they are small."""
        broken, kept = 0, None
        if self.embeddings.numel() <= KEPT_ELEMENTS:
            kept = torch.empty(self.embeddings.shape, device=self.embeddings.device)  # float32
        for number, block in enumerate(self.blocks):
            unit = self._unit(number)
            broken += int(unit.isfinite().all(dim=1).logical_not().sum())
            if kept is not None:
                kept[block] = unit
        if broken:  # a NaN is nearer than nothing and farther than nothing
            raise ValueError(f"{broken} of {len(self.order)} embeddings hold NaN or Inf")
        self.kept = kept

"""Exact recall@K of embeddings.

Recall needs no list of neighbours, only the rank of each image's nearest same-label image. Images are sorted by label
and compared block by block, twice: with those of the same label, which gives each image its nearest match; then with
all others, counting those that are nearer still. Similarity is symmetric: a block serves its rows and its columns,
which halves the work.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

import torch
from torch import Tensor

BLOCK_ROWS, STRIP_BLOCKS = 512, 8  # similarities held at once: 512 x 4096, 8 MB of float32
CACHED_ELEMENTS = 1 << 25  # normalised embeddings up to 128 MB are cached, larger ones recomputed per block
NO_MATCH = 1 << 62  # a rank beyond every K

Progress = Callable[[int, int], None]  # similarities done, total
Part = tuple[slice, slice]  # rows and columns of the similarity matrix


def recall_at_k(
    embeddings: Tensor, labels: Tensor, ks: Sequence[int] = (1, 2, 5, 10), *, progress: Progress | None = None
) -> dict[int, float]:
    """Compute the share of images with a same-label image among their K nearest.

    Similarity is the cosine.

    Args:
        embeddings: ``[N, D]``, any floating type; normalised here.
        labels: ``[N]``.
        ks: the K to report, each >= 1.
        progress: called as progress(similarities done, total): a million images take minutes.

    Returns:
        ``{k: share in 0..1}``. The image itself is left out by position, so duplicates count as other images.
        Ties are ordered by position. An image with a unique label is a miss. NaN and Inf are refused.

    Memory beyond the embeddings stays below 256 MB: one normalised copy while that is small, some blocks of
    similarities, and six numbers per image.

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
    """Count the images before each one's nearest same-label neighbour, int64 ``[N]``.

    Ranks of `limit` and more become `NO_MATCH`. Recall@K is the share of ranks below K.
    """
    with torch.autocast(embeddings.device.type, enabled=False):  # half precision would create ties
        return _Ranking(embeddings, labels.to(embeddings.device), limit).ranks(progress)


class _Ranking:
    """Images sorted by label (`order`, ``[N]``), in blocks of nearly equal length.

    There are no blocks of single rows. Products of one shape sum in one order; otherwise exact duplicates might no
    longer tie.
    """

    def __init__(self, embeddings: Tensor, labels: Tensor, limit: int) -> None:
        count = len(embeddings)
        self.embeddings, self.limit = embeddings, limit
        self.order = labels.argsort(stable=True)  # positions, rising within a label
        self.labels = labels[self.order]
        length = math.ceil(count / math.ceil(count / BLOCK_ROWS))
        self.blocks = [slice(start, min(start + length, count)) for start in range(0, count, length)]
        lasts = self.labels[[block.stop - 1 for block in self.blocks]]
        self.lowest = self.labels[[block.start for block in self.blocks]].tolist()  # labels of each block
        self.highest = lasts.tolist()
        self.ends = torch.searchsorted(self.labels, lasts, right=True).tolist()  # of each block's last label
        self.best = torch.full(
            (count,), -torch.inf, dtype=torch.float32, device=embeddings.device
        )  # nearest match's similarity
        self.first = torch.full_like(self.order, count)  # its position
        self.ahead = torch.zeros_like(self.order)  # number of images before it
        self.units: Tensor | None = None  # normalised embeddings, sorted by label
        self._normalise()

    def ranks(self, progress: Progress | None) -> Tensor:
        todo = total = 0
        if progress is not None:
            todo = total = sum(_size(part) for part in chain(self._matching(), self._others()))
        for part in self._matching():
            self._find_best(*part)
            todo -= _size(part)
            if progress is not None:
                progress(total - todo, total)
        unmatched = self.best == -torch.inf
        self.best[unmatched] = torch.inf  # nothing is nearer
        self.ahead[unmatched] = self.limit
        for part in self._others():
            self._count_nearer(*part)
            todo -= _size(part)
            if progress is not None:
                progress(total - todo, total)
        ranks = torch.empty_like(self.order)
        ranks[self.order] = torch.where(self.ahead < self.limit, self.ahead, NO_MATCH)
        return ranks

    def _matching(self) -> Iterator[Part]:
        """Yield parts on and above the diagonal with pairs that share a label."""
        for number, rows in enumerate(self.blocks):
            yield rows, rows
            yield from self._strips(number, number + 1, bisect_right(self.lowest, self.highest[number]))

    def _others(self) -> Iterator[Part]:
        """Yield parts on and above the diagonal with pairs that do not."""
        for number, rows in enumerate(self.blocks):
            if self.lowest[number] < self.highest[number]:
                yield rows, rows
            first = bisect_right(self.highest, self.lowest[number])  # earlier blocks have this label only
            yield from self._strips(number, max(first, number + 1), len(self.blocks))

    def _strips(self, number: int, first: int, stop: int) -> Iterator[Part]:
        for start in range(first, stop, STRIP_BLOCKS):
            last = min(start + STRIP_BLOCKS, stop) - 1
            yield self.blocks[number], slice(self.blocks[start].start, self.blocks[last].stop)

    def _find_best(self, rows: slice, columns: slice) -> None:
        similarity = self._similarity(rows, columns).masked_fill_(~self._same(rows, columns), -torch.inf)
        if rows == columns:
            similarity.fill_diagonal_(-torch.inf)  # the image itself, by position
        self._raise_best(similarity, rows, columns)
        if rows != columns:
            self._raise_best(similarity.T, columns, rows)

    def _raise_best(self, similarity: Tensor, rows: slice, columns: slice) -> None:
        """Update the nearest match; of equal ones, the first in position stays."""
        nearest, place = similarity.max(dim=1)  # the first of equal ones
        best, first = self.best[rows], self.first[rows]
        better = nearest > best
        best.copy_(torch.where(better, nearest, best))
        first.copy_(torch.where(better, self.order[columns][place], first))

    def _count_nearer(self, rows: slice, columns: slice) -> None:
        similarity = self._similarity(rows, columns)
        end = self.ends[rows.start // self.blocks[0].stop]
        if columns.start < end:  # no match is nearer than the best one
            shared = slice(columns.start, min(end, columns.stop))
            similarity[:, : shared.stop - shared.start].masked_fill_(self._same(rows, shared), -torch.inf)
        self._add_ahead(similarity, rows, columns)
        if rows != columns:
            self._add_ahead(similarity.T, columns, rows)

    def _add_ahead(self, similarity: Tensor, rows: slice, columns: slice) -> None:
        """Count images nearer than the best match, or as near and earlier in position."""
        best, ahead = self.best[rows], self.ahead[rows]
        near_rows = (similarity.amax(dim=1) >= best).nonzero().squeeze(1)  # few: most images are far apart
        if len(near_rows) == 0:
            return
        near, bound = similarity[near_rows], best[near_rows].unsqueeze(1)
        earlier = self.order[columns] < self.first[rows][near_rows].unsqueeze(1)
        ahead[near_rows] += ((near > bound) | ((near == bound) & earlier)).sum(dim=1)
        best[ahead >= self.limit] = torch.inf  # a miss at every K: stop counting

    def _same(self, rows: slice, columns: slice) -> Tensor:
        return self.labels[rows].unsqueeze(1) == self.labels[columns]

    def _similarity(self, rows: slice, columns: slice) -> Tensor:
        return self._unit(rows) @ self._unit(columns).T

    def _unit(self, part: slice) -> Tensor:
        """Return normalised embeddings, sorted by label."""
        if self.units is not None:
            return self.units[part]
        return torch.nn.functional.normalize(self.embeddings[self.order[part]].float(), dim=1)

    def _normalise(self) -> None:
        """Refuse NaN and Inf, and cache the normalised embeddings if they are small."""
        broken, units = 0, None
        if self.embeddings.numel() <= CACHED_ELEMENTS:
            units = torch.empty(self.embeddings.shape, dtype=torch.float32, device=self.embeddings.device)
        for block in self.blocks:
            unit = self._unit(block)
            broken += int(unit.isfinite().all(dim=1).logical_not().sum())
            if units is not None:
                units[block] = unit
        if broken:  # comparisons with NaN are always false
            raise ValueError(f"{broken} of {len(self.order)} embeddings hold NaN or Inf")
        self.units = units


def _size(part: Part) -> int:
    rows, columns = part
    return int((rows.stop - rows.start) * (columns.stop - columns.start))

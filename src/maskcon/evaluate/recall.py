"""Recall@K, exact: does one of an image's K nearest neighbours share its label?"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

BLOCK_ELEMENTS = 1 << 23  # similarities held at once: 32 MB of float32
NO_MATCH = 1 << 62  # a rank beyond every K


def recall_at_k(embeddings: Tensor, labels: Tensor, ks: Sequence[int] = (1, 2, 5, 10)) -> dict[int, float]:
    """Share of images with a same-label image among their K nearest others, by cosine.

    Args:
        embeddings: ``[N, D]``, any floating type; normalised here.
        labels: ``[N]``.
        ks: the K to report, each >= 1.

    Returns:
        ``{k: share in 0..1}``. The image itself is left out by its position, so duplicates count as what they
        are: other images. Neighbours at exactly equal similarity come in the order of their positions.
        An image whose label nobody else has is a miss. Embeddings with NaN or Inf are refused.

    Memory beyond the normalised embeddings stays within a few blocks of `BLOCK_ELEMENTS`.

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
    ranks = rank_of_first_match(embeddings, labels, limit=max(ks))
    return {k: (ranks < k).sum().item() / len(ranks) for k in ks}


@torch.no_grad()
def rank_of_first_match(embeddings: Tensor, labels: Tensor, limit: int) -> Tensor:
    """How many others stand before each image's nearest same-label neighbour, int64 ``[N]``.

    Ranks of `limit` and more are given as `NO_MATCH`. Recall@K is the share of ranks below K.
    """
    count = len(embeddings)
    unit = torch.nn.functional.normalize(embeddings.float(), dim=1)  # [N, D]
    broken = unit.isfinite().all(dim=1).logical_not().sum().item()
    if broken:  # topk would take a NaN for the nearest of all
        raise ValueError(f"{broken} of {count} embeddings hold NaN or Inf")
    labels = labels.to(unit.device)
    position = torch.arange(count, device=unit.device)
    ranks = torch.empty(count, dtype=torch.long, device=unit.device)
    rows = max(1, BLOCK_ELEMENTS // count)
    for start in range(0, count, rows):
        here = position[start : start + rows]
        with torch.autocast(unit.device.type, enabled=False):  # half precision would tie what is not
            similarity = unit[here] @ unit.T  # [rows, N]
        similarity[position[: len(here)], here] = -torch.inf  # oneself, by position
        top = similarity.topk(min(limit + 1, count), dim=1)
        match = (labels[top.indices] == labels[here].unsqueeze(1)) & (top.values > -torch.inf)
        match = match[:, :limit]
        found = torch.where(match.any(dim=1), match.int().argmax(dim=1), NO_MATCH)
        # topk orders equal values as it likes: rows with any are counted instead
        tied = (top.values[:, 1:] == top.values[:, :-1]).any(dim=1)
        if bool(tied.any()):
            counted = _rank_by_counting(similarity[tied], labels[here[tied]], labels, position)
            found[tied] = torch.where(counted < limit, counted, NO_MATCH)
        ranks[here] = found
    return ranks


def _rank_by_counting(similarity: Tensor, row_labels: Tensor, labels: Tensor, position: Tensor) -> Tensor:
    """The same for any ties: ahead of the best match is who is nearer, or equally near and earlier in position."""
    match = row_labels.unsqueeze(1) == labels.unsqueeze(0)  # [rows, N]
    best = similarity.masked_fill(~match, -torch.inf).amax(dim=1, keepdim=True)
    first = (match & (similarity == best)).int().argmax(dim=1, keepdim=True)  # the earliest match at the best
    ahead = ((similarity > best) | ((similarity == best) & (position < first))).sum(dim=1)
    return torch.where(best.squeeze(1) == -torch.inf, NO_MATCH, ahead)

"""Recall@K, exact: does one of an image's K nearest neighbours share its label?"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

BLOCK_ELEMENTS = 1 << 23  # similarities held at once: 32 MB of float32
NO_MATCH = 1 << 62  # rank of an image whose label nobody else has: beyond every K


def recall_at_k(embeddings: Tensor, labels: Tensor, ks: Sequence[int] = (1, 2, 5, 10)) -> dict[int, float]:
    """Share of images with a same-label image among their K nearest others, by cosine.

    Args:
        embeddings: ``[N, D]``, any floating type; normalised here.
        labels: ``[N]``.
        ks: the K to report, each >= 1.

    Returns:
        ``{k: share in 0..1}``. The image itself is left out by its position, so duplicates count as what they
        are: other images. Neighbours at exactly equal similarity come in the order of their positions.
        An image whose label nobody else has is a miss.

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
    ranks = rank_of_first_match(embeddings, labels)
    return {k: (ranks < k).double().mean().item() for k in ks}


@torch.no_grad()
def rank_of_first_match(embeddings: Tensor, labels: Tensor) -> Tensor:
    """How many others stand before each image's nearest same-label neighbour: int64 ``[N]``, or `NO_MATCH`.

    Recall@K is the share of ranks below K. Counting needs no sorting: the neighbours ahead of the best match
    are those that are nearer than it, or equally near and earlier in position.
    """
    count = len(embeddings)
    unit = torch.nn.functional.normalize(embeddings.float(), dim=1)  # [N, D]
    position = torch.arange(count, device=unit.device)
    ranks = torch.empty(count, dtype=torch.long, device=unit.device)
    rows = max(1, BLOCK_ELEMENTS // count)
    for start in range(0, count, rows):
        here = position[start : start + rows]
        similarity = unit[here] @ unit.T  # [rows, N]
        similarity[position[: len(here)], here] = -torch.inf  # oneself, by position
        match = labels[here].unsqueeze(1) == labels.unsqueeze(0)  # [rows, N]
        best, first = similarity.masked_fill(~match, -torch.inf).max(dim=1, keepdim=True)
        ahead = (similarity > best).sum(dim=1)
        ahead += ((similarity == best) & (position < _earliest(similarity, match, best, first))).sum(dim=1)
        ranks[here] = torch.where(best.squeeze(1) == -torch.inf, NO_MATCH, ahead)
    return ranks


def _earliest(similarity: Tensor, match: Tensor, best: Tensor, first: Tensor) -> Tensor:
    """Position of the first match at the best similarity, ``[rows, 1]``: `max` may return any of several."""
    tied = match & (similarity == best)
    return torch.where(tied.any(dim=1, keepdim=True), tied.int().argmax(dim=1, keepdim=True), first)

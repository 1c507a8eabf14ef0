"""Exact nearest neighbours by cosine, in bounded memory."""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK_ROWS, BLOCK_COLUMNS = 1024, 8192  # similarities held at once: 32 MB of float32


@torch.no_grad()
def nearest(embeddings: Tensor, rows: Tensor, k: int = 10) -> tuple[Tensor, Tensor]:
    """The `k` nearest others of some rows of ``[N, D]``, best first: positions and cosines, each ``[Q, k]``.

    Each row is left out of its own answer by position. `k` is cut to N - 1.

    >>> points = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    >>> nearest(points, torch.tensor([0]), k=2)[0]
    tensor([[1, 2]])
    """
    k = max(0, min(k, len(embeddings) - 1))
    with torch.autocast(embeddings.device.type, enabled=False):  # half precision would tie what is not
        found = [_nearest_of(embeddings, part, k) for part in torch.split(rows, BLOCK_ROWS)]
    return torch.cat([positions for positions, _ in found]), torch.cat([cosines for _, cosines in found])


def _nearest_of(embeddings: Tensor, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The same for so few rows that their similarities to a stretch of all fit in memory."""
    queries = _unit(embeddings[rows])  # [Q, D]
    cosines = queries.new_empty(len(rows), 0)
    positions = rows.new_empty(len(rows), 0)
    for start in range(0, len(embeddings), BLOCK_COLUMNS):
        stretch = _unit(embeddings[start : start + BLOCK_COLUMNS])
        similarity = queries @ stretch.T  # [Q, stretch]
        inside = (rows >= start) & (rows < start + len(stretch))
        similarity[inside, rows[inside] - start] = -torch.inf
        top = similarity.topk(min(k, len(stretch)), dim=1)
        cosines = torch.cat([cosines, top.values], dim=1)
        positions = torch.cat([positions, top.indices + start], dim=1)
        best = cosines.topk(min(k, cosines.shape[1]), dim=1)
        cosines, positions = best.values, positions.gather(1, best.indices)
    return positions, cosines


def _unit(vectors: Tensor) -> Tensor:
    return torch.nn.functional.normalize(vectors.float(), dim=1)

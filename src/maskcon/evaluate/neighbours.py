"""Exact nearest neighbours by cosine, in bounded memory."""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK_ELEMENTS = 1 << 23  # similarities held at once: 32 MB of float32


@torch.no_grad()
def nearest(embeddings: Tensor, rows: Tensor, k: int = 10) -> tuple[Tensor, Tensor]:
    """The `k` nearest others of some rows of ``[N, D]``, best first: positions and cosines, each ``[Q, k]``.

    Each row is left out of its own answer by position. `k` is cut to N - 1.

    >>> points = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    >>> nearest(points, torch.tensor([0]), k=2)[0]
    tensor([[1, 2]])
    """
    unit = torch.nn.functional.normalize(embeddings.float(), dim=1)
    k = max(0, min(k, len(unit) - 1))
    block = max(1, BLOCK_ELEMENTS // max(1, len(unit)))
    positions, cosines = [], []
    for part in torch.split(rows, block):
        with torch.autocast(unit.device.type, enabled=False):  # half precision would tie what is not
            similarity = unit[part] @ unit.T  # [rows, N]
        similarity[torch.arange(len(part), device=unit.device), part] = -torch.inf
        top = similarity.topk(k, dim=1)
        positions.append(top.indices)
        cosines.append(top.values)
    return torch.cat(positions), torch.cat(cosines)

"""How much of the space the embeddings use: the number that falls towards 1 when training collapses."""

from __future__ import annotations

import torch
from torch import Tensor


@torch.no_grad()
def effective_rank(embeddings: Tensor) -> float:
    """Exponential of the entropy of the normalised singular values of ``[N, D]``: from 1 up to min(N, D).

    >>> effective_rank(torch.ones(10, 4))
    1.0
    >>> round(effective_rank(torch.eye(4)), 3)
    4.0
    """
    if embeddings.device.type == "mps":  # it has no doubles
        embeddings = embeddings.cpu()
    rows = torch.nn.functional.normalize(embeddings.double(), dim=1)
    values = torch.linalg.svdvals(rows)
    total = values.sum()
    if total == 0:
        return 1.0
    share = values / total
    return float(torch.exp(-torch.xlogy(share, share).sum()).clamp_min(1.0).round(decimals=9))

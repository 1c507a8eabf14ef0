"""Spread the known names of a few images over their coarse class (ours).

Per coarse class, with teacher vectors x_i, less their mean over the class, of unit length:

    W_ij = max(x_i . x_j, 0)^3   where j is one of the 20 nearest of i, or i of j, else 0      [n, n]
    S    = D^-1/2 W D^-1/2,  D = diag(W 1)
    F_0  = Y,  F_(t+1) = 0.95 S F_t + 0.05 Y,  60 times;  Y_ic = 1 where image i has name c    [n, names]
    name of i = argmax_c F_ic / sum_j F_jc       none where F_i = 0: no path leads to a name

This is label spreading (Zhou et al. 2004), with every name given the same total. Letters in shapes: N images, F
features of the teacher, n images of a class.
"""

from __future__ import annotations

import torch
from torch import Tensor

NEIGHBOURS, POWER, KEPT, TIMES = 20, 3, 0.95, 60
BLOCK_ROWS = 1024  # similarities held at once: BLOCK_ROWS x n
FEWEST_NAMES = 2  # in a class; one name alone says nothing about the others


@torch.no_grad()
def spread_names(vectors: Tensor, coarse: Tensor, names: Tensor, may_take: Tensor) -> Tensor:
    """Return names ``[N]``, with those of unnamed images filled in.

    Args:
        vectors: of a fixed teacher, ``[N, F]``.
        coarse: labels, ``[N]``.
        names: known kinds, ``[N]``, each of one coarse class; negative: none.
        may_take: bool ``[N]``, images that may get a name. Others keep what they have, and are left out unless they
            have a name.

    Classes with fewer than two names stay as they are.

    >>> points = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
    >>> names = torch.tensor([5, -1, 7, -1])
    >>> spread_names(points, torch.zeros(4), names, names < 0)
    tensor([5, 5, 7, 7])
    """
    filled = names.clone()
    for label in torch.unique(coarse):
        rows = ((coarse == label) & ((names >= 0) | may_take)).nonzero().squeeze(1)  # [n]
        known = names[rows]
        present = torch.unique(known[known >= 0])
        if len(present) < FEWEST_NAMES or bool((known >= 0).all()):
            continue
        start = (known.unsqueeze(1) == present).to(torch.float64)  # Y, [n, names]
        target, source, share = _flow(vectors[rows])
        scores = start  # F
        for _ in range(TIMES):
            received = torch.zeros_like(start).index_add_(0, target, share.unsqueeze(1) * scores[source])
            scores = KEPT * received + (1 - KEPT) * start
        likeliest = (scores / scores.sum(dim=0)).argmax(dim=1)
        is_reached = (known < 0) & (scores.sum(dim=1) > 0)
        filled[rows] = torch.where(is_reached, present[likeliest], known)
    return filled


def _flow(vectors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows, columns and values of S for images of one class ``[n, F]``."""
    centred = vectors.double() - vectors.double().mean(dim=0)
    unit = torch.nn.functional.normalize(centred, dim=1)
    count = len(unit)
    near = min(NEIGHBOURS, count - 1)
    pairs, weights = [], []
    for start in range(0, count, BLOCK_ROWS):
        similarity = unit[start : start + BLOCK_ROWS] @ unit.T
        rows = torch.arange(start, start + len(similarity), device=unit.device)
        similarity[torch.arange(len(rows)), rows] = -2.0
        cosine, places = similarity.topk(near, dim=1)
        pairs.append(torch.stack([rows.unsqueeze(1).expand_as(places), places]).flatten(1))
        weights.append(cosine.clamp_min(0).pow(POWER).flatten())
    found, weight = torch.cat(pairs, dim=1), torch.cat(weights)
    # W is symmetric: each pair enters in both directions, and one found from both sides only once
    numbers, order = torch.unique(
        torch.cat([found[0] * count + found[1], found[1] * count + found[0]]), return_inverse=True
    )
    values = torch.zeros(len(numbers), dtype=weight.dtype, device=unit.device)
    values.scatter_reduce_(0, order, weight.repeat(2), "amax")
    rows, columns = numbers // count, numbers % count
    degree = torch.zeros_like(unit[:, 0]).index_add_(0, rows, values)
    scale = degree.clamp_min(torch.finfo(torch.float64).tiny).rsqrt()
    return rows, columns, values * scale[rows] * scale[columns]

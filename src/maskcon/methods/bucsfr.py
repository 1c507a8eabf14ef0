"""BuCSFR (Shi et al., ICCV 2025) in our form: clusters choose the positives.

At the start of every epoch after a warm-up, the last key of each image is clustered within its coarse class by
k-means; then the two clusters of the class whose union costs least are merged, if the cost is small:

    L(X)    = (n + D)/2 log2 det(I + D/(16 n) X^T X)                    coding length of the n rows of X [n, D]
    cost    = L(smaller of a, b) / (L(a) + L(b) - L(a with b))          merge a, b where least, if 0 < cost < 2

The class keeps the smaller number for the next epoch. In a step, with c_i the cluster of image i, m_c the unit centres
of all clusters and candidates j of the bank (same coarse class, not an older key of image i):

    p_ij    = softmax_c(k_j . m_c / 0.01)[c_i]
    s_ij    = 1 with probability p_ij / max_j p_ij                      positive
    n_ij    = 1 with probability (1 - p_ij) / max_j (1 - p_ij)          negative
    z_ij    = s_ij exp((k_i . k_j - max_{s_ij = 1} k_i . k_j) / tau)    own key 1, row divided by its sum

A candidate that is neither, s_ij = n_ij = 0, is likely of the same kind: the softmax of the contrast leaves it out.

Shapes: N images, B batch, K bank, D projection, C clusters, n images of a class, k clusters of a class.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

MOST_CLUSTERS, IMAGES_PER_CLUSTER = 25, 10  # of a class at first
ROUNDS, TRIES = 20, 5  # of k-means; the best of several starts is kept
MOST_LOST = 2.0  # cost below which clusters merge
SHARPNESS = 0.01  # temperature of p
NO_CLUSTER = -1  # of an image without a key yet; it has neither positives nor entries left out
DISTORTION = 16.0  # the 16 of L(X)


@dataclass(frozen=True)
class ClusterDraws:
    """What one step knows of the clusters, and its random numbers."""

    cluster: Tensor  # [B] of each image
    shares: Tensor  # [K, C] softmax over clusters of every bank entry
    uniforms: Tensor  # [B, 2K] for positives, then for negatives

    def rows(self, part: slice) -> ClusterDraws:
        """Return the draws of some rows of the batch."""
        return replace(self, cluster=self.cluster[part], uniforms=self.uniforms[part])


class Clusters(nn.Module):
    """Last key and cluster of every image, saved in the `state_dict`.

    Args:
        coarse: labels of the images, ``[N]``.
        dim: D.
    """

    def __init__(self, coarse: Tensor, dim: int) -> None:
        super().__init__()
        self.coarse = coarse
        images = coarse.bincount()
        initial = (images // IMAGES_PER_CLUSTER).clamp(1, MOST_CLUSTERS)
        self._keys: Tensor
        self._cluster: Tensor
        self._centres: Tensor
        self._numbers: Tensor
        self.register_buffer("_keys", torch.zeros(len(coarse), dim, device=coarse.device))
        self.register_buffer("_cluster", torch.full_like(coarse, NO_CLUSTER))
        # one row per cluster, class after class; zeros from the last on, all zeros before the first update
        self.register_buffer("_centres", torch.zeros(int(initial.sum()), dim, device=coarse.device))
        self.register_buffer("_numbers", initial)  # clusters of each class
        self._used = 0  # rows of `_centres` with a cluster, as a number that does not wait for the device

    @torch.no_grad()
    def take_in(self, rows: Tensor, keys: Tensor) -> None:
        """Keep the keys ``[B, D]`` of images ``[B]``."""
        self._keys[rows] = keys.float()

    @torch.no_grad()
    def update(self, generator: torch.Generator) -> None:
        """Cluster all keys again, by class, and merge at most two clusters of each."""
        first = 0
        self._centres.zero_()
        for label, most in enumerate(self._numbers.tolist()):
            members = ((self.coarse == label) & self._keys.any(dim=1)).nonzero().squeeze(1)
            if len(members) == 0:
                continue
            keys = self._keys[members]
            cluster = merge(keys, k_means(keys, min(most, len(members)), generator))
            number = int(cluster.max()) + 1
            sums = torch.nn.functional.one_hot(cluster, number).T.float() @ keys
            self._centres[first : first + number] = torch.nn.functional.normalize(sums, dim=1)
            self._cluster[members] = first + cluster
            self._numbers[label] = number
            first += number
        self._used = first

    def draws(self, rows: Tensor, bank_keys: Tensor, uniforms: Tensor) -> ClusterDraws | None:
        """Return the draws for images ``[B]`` and a bank ``[K, D]``.

        None before the first update.
        """
        if self._used == 0:
            return None
        centres = self._centres[: self._used]
        shares = torch.softmax(bank_keys @ centres.T / SHARPNESS, dim=1)
        return ClusterDraws(self._cluster[rows], shares, uniforms.to(bank_keys.device))

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self.recount()

    def recount(self) -> None:
        """Count the clusters again after the buffers were replaced."""
        self._used = int(self._centres.any(dim=1).sum())


def k_means(points: Tensor, clusters: int, generator: torch.Generator) -> Tensor:
    """Return the cluster of each point ``[n, D]``: the best of `TRIES` random starts.

    Clusters are numbered from 0 without gaps.

    >>> k_means(torch.tensor([[0.0], [0.1], [5.0], [5.1]]), 2, torch.Generator().manual_seed(0)).bincount()
    tensor([2, 2])
    """
    best, least = torch.zeros(len(points), dtype=torch.long, device=points.device), math.inf
    for _ in range(TRIES):
        centres = points[torch.randperm(len(points), generator=generator)[:clusters].to(points.device)]
        for _ in range(ROUNDS):
            cluster = torch.cdist(points, centres).argmin(dim=1)
            belongs = torch.nn.functional.one_hot(cluster, len(centres)).to(points.dtype)  # [n, k]
            counts = belongs.sum(dim=0).unsqueeze(1)
            centres = torch.where(counts > 0, belongs.T @ points / counts.clamp_min(1), centres)
        nearest = torch.cdist(points, centres).min(dim=1)
        spread = nearest.values.square().sum().item()
        if spread < least:
            best, least = nearest.indices, spread
    return _without_gaps(best)


def merge(points: Tensor, cluster: Tensor) -> Tensor:
    """Merge the two clusters of least cost if that is small.

    Args:
        points: ``[n, D]``.
        cluster: of each point, without gaps, ``[n]``.

    Returns:
        The new cluster of each point, without gaps, ``[n]``.
    """
    number = int(cluster.max()) + 1
    if number == 1:
        return cluster
    belongs = torch.nn.functional.one_hot(cluster, number).T.to(points.dtype)  # [k, n]
    sizes = belongs.sum(dim=1)
    moments = torch.stack([points[own > 0].T @ points[own > 0] for own in belongs])  # [k, D, D]
    lengths = coding_length(moments, sizes)
    a, b = torch.triu_indices(number, number, 1, device=points.device)
    together = torch.cat(  # a first cluster with all later ones at once: memory for k matrices, not k^2
        [coding_length(moments[i] + moments[i + 1 :], sizes[i] + sizes[i + 1 :]) for i in range(number - 1)]
    )
    saved = lengths[a] + lengths[b] - together
    cost = torch.where(sizes[a] >= sizes[b], lengths[b], lengths[a]) / saved
    cost = torch.where(saved > 0, cost, math.inf)
    least = int(cost.argmin())
    if cost[least] >= MOST_LOST:
        return cluster
    return _without_gaps(torch.where(cluster == b[least], a[least], cluster))


def _without_gaps(cluster: Tensor) -> Tensor:
    """Renumber clusters from 0 on, in their order."""
    filled = cluster.bincount() > 0
    return (filled.cumsum(0) - 1)[cluster]


def coding_length(moments: Tensor, sizes: Tensor) -> Tensor:
    """Return L ``[m]`` of point sets, by ``X^T X`` ``[m, D, D]`` and sizes ``[m]``.

    >>> length = coding_length(torch.eye(1)[None] * 16, torch.tensor([1.0]))  # (1 + 1)/2 log2(1 + 1/16 * 16)
    >>> round(length.item(), 4)
    1.0
    """
    dim = moments.shape[-1]
    scaled = moments * (dim / (DISTORTION * sizes))[:, None, None]
    roots = torch.linalg.cholesky(torch.eye(dim, device=moments.device) + scaled)
    log_determinant = 2 * roots.diagonal(dim1=1, dim2=2).log2().sum(dim=1)
    lengths: Tensor = (sizes + dim) / 2 * log_determinant
    return lengths


def positives(draws: ClusterDraws, candidates: Tensor) -> Tensor:
    """Draw s, bool ``[B, K]``, among candidates ``[B, K]``."""
    return _draw(_shares(draws), candidates, draws, slice(0, candidates.shape[1]))


def left_out(draws: ClusterDraws, candidates: Tensor) -> Tensor:
    """Return candidates drawn neither as positive nor as negative, bool ``[B, K]``."""
    clustered = (draws.cluster != NO_CLUSTER).unsqueeze(1)
    negative = _draw(1 - _shares(draws), candidates, draws, slice(candidates.shape[1], None))
    return candidates & clustered & ~negative & ~positives(draws, candidates)


def _shares(draws: ClusterDraws) -> Tensor:
    """Return p, ``[B, K]``."""
    return draws.shares.T[draws.cluster]


def _draw(chances: Tensor, candidates: Tensor, draws: ClusterDraws, numbers: slice) -> Tensor:
    """Draw candidates by chances relative to the largest of a row, bool ``[B, K]``."""
    if candidates.shape[1] == 0:
        return candidates
    possible = candidates & (draws.cluster != NO_CLUSTER).unsqueeze(1)
    likely = chances.masked_fill(~possible, 0)
    return draws.uniforms[:, numbers] * likely.amax(dim=1, keepdim=True) < likely

"""Soft positive weights z (eq. 11-14).

    z_ii' = 1                                                own key, the other view of image i
    z_ij  = exp((d_ij - max_j d_ij) / tau)   where y_j = y_i  bank entry j, with d_ij = k_i . k_j
    z_ij  = 0                                elsewhere

and each row is divided by its sum. Other methods differ in z only:

    relation            own key   bank entry j                                paper
    self_relation       1         0                                           z^self
    coarse_relation     1         1 where y_j = y_i                           z^sup
    masked_relation     1         exp((d_ij - max d_i) / tau) where y_j = y_i z^mask, eq. 11-14
    nearest_relation    1         1 for the nearest entry, labels ignored     NNCLR
    adaptive_relation   w_i * (masked relation without mask)                  ASCL
                        + (1 - w_i) * self, w_i its normalised entropy

Known names of finer kinds, n_i for image i where it has one, refine the mask (ours, not the paper's). The candidates of
row i are S_i = {j : y_j = y_i, j not an older key of image i, not (n_i and n_j both known and n_i != n_j)}, and

    z_ij  = 1                                           where j in S_i and n_i, n_j are both known (then n_i = n_j)
    z_ij  = exp((d_ij - max_{k in S_i} d_ik) / tau)     where j in S_i and n_i or n_j is not known
    z_ij  = 0                                           elsewhere: another class, or another name

Without names this is eq. 11-14; with all names it is `coarse_relation` of the names (SupCon on fine labels).
`coarse_relation` takes z_ij = 1 for all of S_i.

Shapes: B batch, K bank, D projection. Every relation is float32 ``[B, 1+K]`` with rows >= 0 that sum to 1; column
`OWN_KEY` is the own key, columns 1..K are the bank. With `index` and `bank_index`, older keys of the same image are
excluded (i != j in eq. 11). `names` and `bank_names` are numbers of kinds, negative where none is known. Relations are
targets: no gradient flows through them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

OWN_KEY = 0  # column of the own key

# Bounds of tau within which tau and 1 / tau stay in float32; the limits 0 and inf are handled exactly.
SMALLEST_TEMPERATURE, LARGEST_TEMPERATURE = 1e-30, 1e30


def self_relation(batch_size: int, bank_size: int, *, device: torch.device | str | None = None) -> Tensor:
    """Return z^self: only the own key is a positive (instance discrimination).

    >>> self_relation(2, 3)
    tensor([[1., 0., 0., 0.],
            [1., 0., 0., 0.]])
    """
    relation = torch.zeros(batch_size, 1 + bank_size, dtype=torch.float32, device=device)  # [B, 1+K]
    relation[:, OWN_KEY] = 1
    return relation


def coarse_relation(
    coarse: Tensor,
    bank_coarse: Tensor,
    *,
    index: Tensor | None = None,
    bank_index: Tensor | None = None,
    names: Tensor | None = None,
    bank_names: Tensor | None = None,
) -> Tensor:
    """Return z^sup: every entry of the same coarse class counts like the own key.

    Args:
        coarse: labels of the batch, ``[B]``.
        bank_coarse: labels of the bank, ``[K]``.
        index, bank_index: sample numbers ``[B]`` and ``[K]``; older keys of the same image are excluded.
        names, bank_names: known kinds ``[B]`` and ``[K]``, negative: none; entries of another name are excluded.

    >>> coarse_relation(torch.tensor([0, 1]), torch.tensor([0, 0, 1]))
    tensor([[0.3333, 0.3333, 0.3333, 0.0000],
            [0.5000, 0.0000, 0.0000, 0.5000]])
    """
    candidates = same_class(coarse, bank_coarse, index, bank_index)
    _apply_names(candidates, names, bank_names)
    return _with_own_key(candidates.float())


def masked_relation(
    keys: Tensor,
    bank_keys: Tensor,
    coarse: Tensor,
    bank_coarse: Tensor,
    temperature: float,
    *,
    index: Tensor | None = None,
    bank_index: Tensor | None = None,
    names: Tensor | None = None,
    bank_names: Tensor | None = None,
    similarity: Tensor | None = None,
) -> Tensor:
    """Return MaskCon's z^mask (eq. 11-14): soft weights within the coarse class.

        z_ij = exp((d_ij - max_j d_ij) / tau) where y_j = y_i, else 0; own key 1; rows divided by their sum

    The nearest entry of the class counts like the own key. A row whose class is missing in the bank is the self
    relation.

    Args:
        keys: l2-normalised keys of the batch, ``[B, D]``; d compares the key view, not the query view.
        bank_keys: l2-normalised keys of the bank, ``[K, D]``.
        coarse, bank_coarse: labels, ``[B]`` and ``[K]``.
        temperature: tau of eq. 11, >= 0. At 0 only the nearest entry counts (exact ties all count); at
            ``math.inf`` every entry of the class counts alike, as in `coarse_relation`.
        index, bank_index: sample numbers ``[B]`` and ``[K]``; older keys of the same image are excluded.
        names, bank_names: known kinds ``[B]`` and ``[K]``, negative: none. Of two entries of the class that both have
            one, equal names weigh 1 and different names 0, at any temperature and similarity.
        similarity: d ``[B, K]``, used instead of the cosine of keys; -inf excludes an entry, unless the
            temperature is ``math.inf`` or both have the same name.

    >>> east, north = [1.0, 0.0], [0.0, 1.0]
    >>> z = masked_relation(torch.tensor([east]), torch.tensor([east, north, east]),
    ...                     torch.tensor([7]), torch.tensor([7, 7, 8]), temperature=0.1)
    >>> [round(x, 4) for x in z[0].tolist()]  # own key, near, far, other class
    [0.5, 0.5, 0.0, 0.0]
    """
    candidates = same_class(coarse, bank_coarse, index, bank_index)  # [B, K]
    same_name = _apply_names(candidates, names, bank_names)
    weights = _similarity_weights(keys, bank_keys, candidates, temperature, similarity)
    return _with_own_key(weights if same_name is None else weights.masked_fill_(same_name, 1))


def nearest_relation(
    keys: Tensor,
    bank_keys: Tensor,
    *,
    index: Tensor | None = None,
    bank_index: Tensor | None = None,
    similarity: Tensor | None = None,
) -> Tensor:
    """Return NNCLR's relation: own key and nearest entry, half each.

    This is z^mask without mask at tau = 0.
    """
    return masked_relation(
        keys,
        bank_keys,
        *_one_class(keys, bank_keys),
        temperature=0.0,
        index=index,
        bank_index=bank_index,
        similarity=similarity,
    )


def adaptive_relation(
    keys: Tensor,
    bank_keys: Tensor,
    temperature: float,
    *,
    index: Tensor | None = None,
    bank_index: Tensor | None = None,
    similarity: Tensor | None = None,
) -> Tensor:
    """Return ASCL's relation: soft neighbours, weighted by their entropy.

        z_i = w_i * z'_i + (1 - w_i) * z^self_i,   w_i = normalised_entropy(z'_i)

    z' is z^mask without mask. A row with one clear neighbour (low entropy) stays close to the self relation.
    """
    coarse, bank_coarse = _one_class(keys, bank_keys)
    candidates = same_class(coarse, bank_coarse, index, bank_index)
    weights = _similarity_weights(keys, bank_keys, candidates, temperature, similarity)  # [B, K]
    w = normalised_entropy(weights, candidates).unsqueeze(1)  # [B, 1]
    own = self_relation(len(keys), len(bank_keys), device=keys.device)
    return w * _with_own_key(weights) + (1 - w) * own


def normalised_entropy(weights: Tensor, candidates: Tensor) -> Tensor:
    """Return ``H(row) / log(candidates of the row)``, ``[B]`` in 0..1.

    weights, candidates: ``[B, K]``.

    A row with fewer than two candidates has entropy 0.
    """
    total = weights.sum(dim=1, keepdim=True)
    share = weights / total.clamp_min(torch.finfo(weights.dtype).tiny)  # [B, K]
    entropy = -torch.xlogy(share, share).sum(dim=1)  # [B]
    count = candidates.sum(dim=1).clamp_min(2).to(weights.dtype)  # fewer than 2: entropy 0
    return (entropy / count.log()).clamp(0, 1)


def same_class(
    coarse: Tensor, bank_coarse: Tensor, index: Tensor | None, bank_index: Tensor | None
) -> Tensor:
    """Mark entries of the same class that are not the same image: bool ``[B, K]``."""
    if (index is None) != (bank_index is None):
        raise ValueError("index and bank_index go together: give both, or neither")
    candidates = coarse.unsqueeze(1) == bank_coarse.unsqueeze(0)
    if index is not None and bank_index is not None:
        if index.shape != coarse.shape or bank_index.shape != bank_coarse.shape:
            raise ValueError(
                f"index {tuple(index.shape)} and bank_index {tuple(bank_index.shape)} must have the shapes of "
                f"coarse {tuple(coarse.shape)} and bank_coarse {tuple(bank_coarse.shape)}"
            )
        candidates &= index.unsqueeze(1) != bank_index.unsqueeze(0)
    return candidates


def _apply_names(candidates: Tensor, names: Tensor | None, bank_names: Tensor | None) -> Tensor | None:
    """Drop candidates of another name, in place; return those of the same name."""
    if names is None and bank_names is None:
        return None
    if names is None or bank_names is None:
        raise ValueError("names and bank_names go together: give both, or neither")
    if candidates.shape != (len(names), len(bank_names)):
        raise ValueError(
            f"names {tuple(names.shape)} and bank_names {tuple(bank_names.shape)}, "
            f"expected [B] and [K] of {tuple(candidates.shape)}"
        )
    both = (names >= 0).unsqueeze(1) & (bank_names >= 0).unsqueeze(0)
    same = names.unsqueeze(1) == bank_names.unsqueeze(0)
    candidates &= same | ~both
    return candidates & both


def similarities(keys: Tensor, bank_keys: Tensor) -> Tensor:
    """Return ``d_ij = k_i . k_j`` of unit keys, float32 ``[B, K]``; without autocast."""
    with torch.autocast(keys.device.type, enabled=False):
        return keys.float() @ bank_keys.float().T


def _similarity_weights(
    keys: Tensor,
    bank_keys: Tensor,
    candidates: Tensor,
    temperature: float,
    similarity: Tensor | None = None,
) -> Tensor:
    """Return ``exp((d - d_max) / tau)`` for candidates, else 0: float32 ``[B, K]``.

    In float32, because tau is as small as 0.005. d_max is the largest CANDIDATE of the row: shifted by the maximum
    over all entries, a class of low similarities would underflow to no positives.
    """
    if not temperature >= 0:  # also refuses NaN
        raise ValueError(f"{temperature=} of the relation must be >= 0 (0 and inf are allowed)")
    if candidates.shape != (len(keys), len(bank_keys)):  # else a single label would be broadcast
        raise ValueError(
            f"labels for {tuple(candidates.shape)} = [B, K], but keys {tuple(keys.shape)} "
            f"and bank_keys {tuple(bank_keys.shape)}"
        )
    if similarity is not None and similarity.shape != candidates.shape:
        raise ValueError(
            f"similarity is {tuple(similarity.shape)}, expected {tuple(candidates.shape)} = [B, K]"
        )
    if temperature == math.inf or bank_keys.shape[0] == 0:
        return candidates.float()
    with torch.no_grad(), torch.autocast(keys.device.type, enabled=False):
        if similarity is None:
            similarity = similarities(keys, bank_keys)
        else:
            similarity = similarity.to(torch.float32, copy=True)
        similarity.masked_fill_(~candidates, -math.inf)
        nearest = similarity.amax(dim=1, keepdim=True)  # [B, 1]; -inf without candidates
        if temperature == 0:
            return ((similarity == nearest) & (similarity > -math.inf)).float()
        nearest.nan_to_num_(neginf=0.0)  # -inf - -inf would be NaN; -inf - 0 gives weight 0
        bounded = min(max(temperature, SMALLEST_TEMPERATURE), LARGEST_TEMPERATURE)
        # exp(x) = 2^(x log2 e): torch.exp is several times slower on -inf on a CPU, torch.exp2 is not
        return similarity.sub_(nearest).mul_(math.log2(math.e) / bounded).exp2_()


def _with_own_key(weights: Tensor) -> Tensor:
    """Prepend the own key with weight 1 to ``[B, K]``; normalise rows ``[B, 1+K]``."""
    total = 1 + weights.sum(dim=1, keepdim=True)  # >= 1: never a division by zero
    return torch.cat([torch.ones_like(total), weights], dim=1).div_(total)


def _one_class(keys: Tensor, bank_keys: Tensor) -> tuple[Tensor, Tensor]:
    """Return equal labels for all rows and entries: the mask keeps everything."""
    return keys.new_zeros(len(keys), dtype=torch.long), keys.new_zeros(len(bank_keys), dtype=torch.long)

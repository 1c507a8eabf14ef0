"""Who is how much a positive of whom: the inter-sample relations z of the paper, as pure functions.

Every function returns float32 ``[B, 1+K]``. Column `OWN_KEY` is the sample's own key (the other view of the
same image), columns 1..K are the bank. Rows are >= 0 and sum to 1.

    relation            own key   bank entry j                                   paper
    self_relation       1         0                                              z^self
    coarse_relation     1         1 where y_j = y_i                              z^sup
    masked_relation     1         exp((d_j - d_max) / tau) where y_j = y_i       z^mask, eq. 11-14
    nearest_relation    1         1 for the nearest entry, labels ignored        NNCLR
    adaptive_relation   masked relation without the mask, mixed with the         ASCL
                        self relation by its own normalised entropy
                        (all shown before each row is divided by its sum)

Given `index` and `bank_index`, entries of the bank that are older keys of the very same image are left out
everywhere (i != j in eq. 11). Relations are targets: no gradient flows through them.
"""

from __future__ import annotations

import math
from functools import cached_property

import torch
from torch import Tensor

OWN_KEY = 0  # the column of the sample's own key

# tau beyond these would leave float32, as would 1 / tau; the limits 0 and inf are reached long before.
SMALLEST_TEMPERATURE, LARGEST_TEMPERATURE = 1e-30, 1e30


def self_relation(batch_size: int, bank_size: int, *, device: torch.device | str | None = None) -> Tensor:
    """Only the own key is a positive: instance discrimination.

    >>> self_relation(2, 3)
    tensor([[1., 0., 0., 0.],
            [1., 0., 0., 0.]])
    """
    relation = torch.zeros(batch_size, 1 + bank_size, dtype=torch.float32, device=device)  # [B, 1+K]
    relation[:, OWN_KEY] = 1
    return relation


def coarse_relation(
    coarse: Tensor, bank_coarse: Tensor, *, index: Tensor | None = None, bank_index: Tensor | None = None
) -> Tensor:
    """All entries of the same coarse class are positives, as much as the own key: supervised contrast.

    Args:
        coarse: labels of the batch, ``[B]``.
        bank_coarse: labels of the bank, ``[K]``.
        index, bank_index: sample numbers ``[B]`` and ``[K]``; entries with the row's own number are left out.

    >>> coarse_relation(torch.tensor([0, 1]), torch.tensor([0, 0, 1]))
    tensor([[0.3333, 0.3333, 0.3333, 0.0000],
            [0.5000, 0.0000, 0.0000, 0.5000]])
    """
    return _with_own_key(_candidates(coarse, bank_coarse, index, bank_index).float())


def masked_relation(
    keys: Tensor,
    bank_keys: Tensor,
    coarse: Tensor,
    bank_coarse: Tensor,
    temperature: float,
    *,
    index: Tensor | None = None,
    bank_index: Tensor | None = None,
    similarity: Tensor | None = None,
    by_class: BankByClass | None = None,
) -> Tensor:
    """MaskCon's soft relation: entries of the same coarse class, by their similarity to the sample's KEY view.

    The nearest entry of the class counts as much as the own key, others less the farther they are;
    other classes count nothing. A row whose class is absent from the bank is the self relation.

    Args:
        keys: l2-normalised keys of the batch, ``[B, D]``; the key view asks, not the query view.
        bank_keys: l2-normalised keys of the bank, ``[K, D]``.
        coarse, bank_coarse: labels, ``[B]`` and ``[K]``.
        temperature: tau of eq. 11, >= 0. 0: the nearest entry alone (entries that tie exactly all count);
            ``math.inf``: every entry of the class alike, which is `coarse_relation`.
        index, bank_index: sample numbers ``[B]`` and ``[K]``; entries with the row's own number are left out.
        similarity: ``[B, K]``, what to go by instead of the cosine of keys; -inf for an entry that counts nothing,
            unless the temperature is ``math.inf``.
        by_class: the same bank, sorted: similarities are then computed to the entries of a row's class alone. The
            relation is the same but for rounding, and sooner there where the bank is large.

    >>> east, north = [1.0, 0.0], [0.0, 1.0]
    >>> z = masked_relation(torch.tensor([east]), torch.tensor([east, north, east]),
    ...                     torch.tensor([7]), torch.tensor([7, 7, 8]), temperature=0.1)
    >>> [round(x, 4) for x in z[0].tolist()]  # own key, near, far, other class
    [0.5, 0.5, 0.0, 0.0]
    """
    if by_class is not None:
        return _masked_by_class(keys, by_class, coarse, temperature, index, bank_index)
    candidates = _candidates(coarse, bank_coarse, index, bank_index)  # [B, K]
    return _with_own_key(_similarity_weights(keys, bank_keys, candidates, temperature, similarity))


class BankByClass:
    """A bank sorted by class, so that the entries of one stand side by side; sorted when first asked, then kept.

    Args:
        keys: ``[K, D]``.
        coarse: labels, ``[K]``.
    """

    def __init__(self, keys: Tensor, coarse: Tensor) -> None:
        if len(keys) != len(coarse):
            raise ValueError(f"{len(coarse)} labels for {len(keys)} keys")
        self._keys, self._coarse = keys, coarse

    @property
    def size(self) -> int:
        return len(self._keys)

    def of(self, label: int) -> tuple[Tensor, Tensor]:
        """Columns ``[n]`` of the bank that are of this class, in their order, and their keys ``[n, D]``."""
        start, end = self._bounds.get(label, (0, 0))
        return self._order[start:end], self._sorted[start:end]

    @cached_property
    def _order(self) -> Tensor:
        return torch.argsort(self._coarse, stable=True)

    @cached_property
    def _sorted(self) -> Tensor:
        return self._keys.float()[self._order]

    @cached_property
    def _bounds(self) -> dict[int, tuple[int, int]]:
        labels, counts = torch.unique_consecutive(self._coarse[self._order], return_counts=True)
        ends = counts.cumsum(0)
        return dict(
            zip(labels.tolist(), zip((ends - counts).tolist(), ends.tolist(), strict=True), strict=True)
        )


def _masked_by_class(
    keys: Tensor,
    bank: BankByClass,
    coarse: Tensor,
    temperature: float,
    index: Tensor | None,
    bank_index: Tensor | None,
) -> Tensor:
    """The masked relation, a class of rows at a time, from the columns of that class alone."""
    relation = self_relation(len(keys), bank.size, device=keys.device)
    for label in sorted(set(coarse.tolist())):
        rows = (coarse == label).nonzero().squeeze(1)  # [b]
        columns, bank_keys = bank.of(label)  # [n], [n, D]
        if len(columns) == 0:
            continue  # the self relation
        candidates = _candidates(
            coarse[rows],
            coarse.new_full((len(columns),), label),
            None if index is None else index[rows],
            None if bank_index is None else bank_index[columns],
        )
        among = _with_own_key(_similarity_weights(keys[rows], bank_keys, candidates, temperature))  # [b, 1+n]
        relation[rows, OWN_KEY] = among[:, OWN_KEY]
        relation[rows.unsqueeze(1), 1 + columns] = among[:, 1:]
    return relation


def nearest_relation(
    keys: Tensor,
    bank_keys: Tensor,
    *,
    index: Tensor | None = None,
    bank_index: Tensor | None = None,
    similarity: Tensor | None = None,
) -> Tensor:
    """Own key and nearest entry of the whole bank, half each: MaskCon without mask, w = 1, tau = 0 (NNCLR)."""
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
    """MaskCon without mask, mixed with the self relation by ``w_i = norm_entropy(z'_i)``: ASCL as the paper reads it.

    A row with one clear neighbour (low entropy) stays near the self relation, an undecided row spreads out.
    """
    coarse, bank_coarse = _one_class(keys, bank_keys)
    candidates = _candidates(coarse, bank_coarse, index, bank_index)
    weights = _similarity_weights(keys, bank_keys, candidates, temperature, similarity)  # [B, K]
    w = normalised_entropy(weights, candidates).unsqueeze(1)  # [B, 1]
    own = self_relation(len(keys), len(bank_keys), device=keys.device)
    return w * _with_own_key(weights) + (1 - w) * own


def normalised_entropy(weights: Tensor, candidates: Tensor) -> Tensor:
    """Entropy of each row of `weights` ``[B, K]`` as a distribution, over that of the uniform one: 0..1, ``[B]``.

    A row with fewer than two candidates has nothing to be uncertain about: 0.
    """
    total = weights.sum(dim=1, keepdim=True)
    share = weights / total.clamp_min(torch.finfo(weights.dtype).tiny)  # [B, K]
    entropy = -torch.xlogy(share, share).sum(dim=1)  # [B]
    count = candidates.sum(dim=1).clamp_min(2).to(weights.dtype)  # fewer than 2: entropy 0
    return (entropy / count.log()).clamp(0, 1)


def _candidates(
    coarse: Tensor, bank_coarse: Tensor, index: Tensor | None, bank_index: Tensor | None
) -> Tensor:
    """Entries that may be positives of a row: same class, not the same image. Boolean ``[B, K]``."""
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


def similarities(keys: Tensor, bank_keys: Tensor) -> Tensor:
    """Cosines of l2-normalised keys ``[B, D]`` and ``[K, D]``: float32 ``[B, K]``, under autocast too."""
    with torch.autocast(keys.device.type, enabled=False):
        return keys.float() @ bank_keys.float().T


def _similarity_weights(
    keys: Tensor,
    bank_keys: Tensor,
    candidates: Tensor,
    temperature: float,
    similarity: Tensor | None = None,
) -> Tensor:
    """``exp((d - d_max) / tau)`` of the candidates, 0 elsewhere: float32 ``[B, K]``, largest entry 1.

    Half precision would lose it: tau is as small as 0.005. And the shift must be by the largest CANDIDATE:
    shifted by the row's own maximum, a class of low similarities would underflow to no positives at all.
    """
    if not temperature >= 0:  # also refuses NaN
        raise ValueError(f"{temperature=} of the relation must be >= 0 (0 and inf are allowed)")
    if candidates.shape != (len(keys), len(bank_keys)):  # broadcasting one label over many would go unseen
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
        nearest = similarity.amax(dim=1, keepdim=True)  # [B, 1]; -inf where nothing counts
        if temperature == 0:
            return ((similarity == nearest) & (similarity > -math.inf)).float()
        nearest.nan_to_num_(neginf=0.0)  # -inf - -inf would be NaN; -inf - 0 gives weight 0
        bounded = min(max(temperature, SMALLEST_TEMPERATURE), LARGEST_TEMPERATURE)
        # exp(x) as 2^(x log2 e): on a CPU torch's exp is several times slower where it meets -inf, its exp2 is not.
        return similarity.sub_(nearest).mul_(math.log2(math.e) / bounded).exp2_()


def _with_own_key(weights: Tensor) -> Tensor:
    """Prepend the own key with weight 1 to ``[B, K]`` and divide each row by its sum: ``[B, 1+K]``."""
    total = 1 + weights.sum(dim=1, keepdim=True)  # >= 1: never a division by zero
    return torch.cat([torch.ones_like(total), weights], dim=1).div_(total)


def _one_class(keys: Tensor, bank_keys: Tensor) -> tuple[Tensor, Tensor]:
    """Labels under which the mask lets everything through."""
    return keys.new_zeros(len(keys), dtype=torch.long), keys.new_zeros(len(bank_keys), dtype=torch.long)

"""Distance d_z of theorem 1: a method's relations against those of the fine labels.

    d_z = mean over samples of || z_i - optimal_i ||_2

The theorem assumes that an optimal relation exists. Here it is the relation of the fine labels: own key and every bank
entry of the same fine class with equal weights (`optimal_relation`). With `unit="row"` relations are compared as in the
loss, rows divided by their sums, since the theorem is about this loss. `unit="own key"` compares them as in eq. 6, 7
and 14, own key 1 and rows undivided, mixed by w as in eq. 9 and 15; this can reverse the order of methods. (ASCL, with
its own weights w_i, is only rescaled.)

The theorem: with probability 1 - delta,

    | expected risk under the optimal relations - empirical risk under z |  <=  Hoeffding term + lambda * d_z

The Hoeffding term does not depend on z. lambda is the Lipschitz constant of the loss in z: the loss is linear in z, so
lambda is the largest norm of -log q (`lipschitz_constant`), equal for all methods, and large. Between methods and
temperatures only d_z changes the bound.

Limits: a smaller d_z makes the bound tighter; it does not predict a better encoder. The bound is on a gap of losses,
not on recall, and it takes z as given, while MaskCon computes z from the learnt keys.

Range: two rows that sum to 1 are at most sqrt(2) apart. In every relation of this package no entry exceeds
the own key; then the distance is below 1. With m bank entries of the sample's fine class among c of its coarse class:

    SelfCon   sqrt(m / (1 + m))                 near 1 if a few entries share the class
    SupCon    sqrt(1 / (1 + m) - 1 / (1 + c))   near 0 in a large bank, for any labels

so d_z prefers SupCon to SelfCon for m >= 1, also on data where SelfCon retrieves better (the paper's SOP tables). In
units of the own key these are sqrt(m) and sqrt(c - m), and SelfCon is better if a fine class is less than half of its
coarse class. The cross-entropy of CoIns is in no relation: its d_z is SelfCon's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from maskcon._utils.errors import UsageError
from maskcon.methods.registry import Method, RelationInputs, method_named
from maskcon.methods.relations import OWN_KEY, coarse_relation

Unit = Literal["row", "own key"]

BLOCK_ELEMENTS = 1 << 22  # entries of a relation held at once: 16 MB of float32, a few times over


@dataclass(frozen=True)
class Recipe:
    """A method, by name or as object, with w and tau; unused ones are ignored."""

    method: str | Method
    w: float = 1.0
    tau: float = 0.1


@dataclass(frozen=True)
class SampleLabels:
    """Coarse and fine labels of the training samples by sample number.

    >>> labels = SampleLabels(torch.tensor([30, 10]), coarse=torch.tensor([0, 1]), fine=torch.tensor([5, 7]))
    >>> labels.of(torch.tensor([10, 30, 10]))
    (tensor([1, 0, 1]), tensor([7, 5, 7]))
    """

    index: Tensor  # [N] sample numbers, each once
    coarse: Tensor  # [N]
    fine: Tensor  # [N]

    def of(self, wanted: Tensor) -> tuple[Tensor, Tensor]:
        """Return coarse and fine labels of sample numbers, each in the shape of `wanted`."""
        order = self.index.argsort()
        ascending = self.index[order]
        place = torch.searchsorted(ascending, wanted).clamp_max(len(ascending) - 1)
        missing = wanted[ascending[place] != wanted]
        if len(missing):
            raise UsageError(
                f"{len(missing)} of {len(wanted)} samples (the first is number {int(missing[0])}) are not in "
                "these data; give the data that the run was trained on"
            )
        rows = order[place]
        return self.coarse[rows], self.fine[rows]


def relation_distance(relation: Tensor, optimal: Tensor) -> Tensor:
    """Return the l2 distance of the rows of two relations ``[B, 1+K]``: ``[B]``, float32.

    >>> relation_distance(torch.tensor([[1.0, 0.0], [0.5, 0.5]]), torch.tensor([[0.0, 1.0], [0.5, 0.5]]))
    tensor([1.4142, 0.0000])
    """
    if relation.shape != optimal.shape or relation.ndim != 2:
        raise ValueError(
            f"expected two relations [B, 1+K], got {tuple(relation.shape)} and {tuple(optimal.shape)}"
        )
    distance: Tensor = torch.linalg.vector_norm(relation.float() - optimal.float(), dim=1)
    return distance


def optimal_relation(
    fine: Tensor, bank_fine: Tensor, *, index: Tensor | None = None, bank_index: Tensor | None = None
) -> Tensor:
    """Return the relation of the fine labels: `coarse_relation` applied to them, ``[B, 1+K]``.

    >>> optimal_relation(torch.tensor([7]), torch.tensor([7, 8, 7, 7]))
    tensor([[0.2500, 0.2500, 0.0000, 0.2500, 0.2500]])
    """
    return coarse_relation(fine, bank_fine, index=index, bank_index=bank_index)


def bound_distance(
    method: str | Method, *tensors: Tensor, w: float = 1.0, tau: float = 0.1, **given: Any
) -> float:
    """Compute d_z of one method; `tensors` and `given` are those of `bound_distances`.

    >>> keys, bank = torch.eye(2), torch.eye(2).repeat(2, 1)
    >>> coarse, fine = torch.tensor([0, 0]), torch.tensor([0, 1])
    >>> labels = coarse, coarse.repeat(2), fine, fine.repeat(2)
    >>> [round(bound_distance(name, keys, bank, *labels, tau=0.1), 3) for name in ("selfcon", "supcon", "maskcon")]
    [0.816, 0.365, 0.0]
    """
    return bound_distances({"": Recipe(method, w, tau)}, *tensors, **given)[""]


@torch.no_grad()
def bound_distances(
    recipes: Mapping[str, Recipe],
    keys: Tensor,
    bank_keys: Tensor,
    coarse: Tensor,
    bank_coarse: Tensor,
    fine: Tensor,
    bank_fine: Tensor,
    *,
    index: Tensor | None = None,
    bank_index: Tensor | None = None,
    unit: Unit = "row",
) -> dict[str, float]:
    """Compute d_z of several recipes on the same samples, in blocks of rows: memory does not grow with B x K.

    Args:
        recipes: contrastive methods with their w and tau, by any name.
        keys, bank_keys: l2-normalised, ``[B, D]`` and ``[K, D]``.
        coarse, bank_coarse: labels that the method uses, ``[B]`` and ``[K]``.
        fine, bank_fine: labels of the optimal relation, ``[B]`` and ``[K]``.
        index, bank_index: sample numbers ``[B]`` and ``[K]``; entries with the row's own number are left out of
            both relations.
        unit: "row" or "own key", see above.
    """
    if (index is None) != (bank_index is None):
        raise ValueError("index and bank_index go together: give both, or neither")
    if unit not in get_args(Unit):
        raise ValueError(f"{unit=} must be one of {get_args(Unit)}")
    _check_shapes((keys, coarse, fine, index), (bank_keys, bank_coarse, bank_fine, bank_index))
    methods = {name: _contrastive(recipe.method) for name, recipe in recipes.items()}
    totals = dict.fromkeys(recipes, 0.0)
    rows = max(1, BLOCK_ELEMENTS // (1 + len(bank_keys)))
    for start in range(0, len(keys), rows):
        here = slice(start, start + rows)
        own = None if index is None else index[here]
        optimal = optimal_relation(fine[here], bank_fine, index=own, bank_index=bank_index)
        if unit == "own key":
            optimal = _undivided(optimal)
        for name, recipe in recipes.items():
            sees_fine = methods[name].labels == "fine"
            inputs = RelationInputs(
                keys=keys[here],
                coarse=fine[here] if sees_fine else coarse[here],
                index=own,
                bank_keys=bank_keys,
                bank_coarse=bank_fine if sees_fine else bank_coarse,
                bank_index=bank_index,
                w=recipe.w,
                tau=recipe.tau,
            )
            relation = _relation(methods[name], inputs, unit)
            # summed on the host: not every device has float64
            totals[name] += math.fsum(relation_distance(relation, optimal).tolist())
    return {name: total / len(keys) for name, total in totals.items()}


def bank_distances(
    recipes: Mapping[str, Recipe],
    bank_keys: Tensor,
    bank_index: Tensor,
    labels: SampleLabels,
    *,
    exclude_own_keys: bool = True,
    unit: Unit = "row",
) -> dict[str, float]:
    """Compute d_z over the samples of a bank: each entry is the own key once, with the others as its bank.

    Uses the keys of training, so that no image is encoded. In training the own key is new and the bank up to K / B
    steps old; here both have the age of the bank.

    Args:
        recipes: recipes by any name.
        bank_keys, bank_index: the bank's keys ``[K, D]`` and sample numbers ``[K]``, K >= 1.
        labels: of all training samples.
        exclude_own_keys: setting of the run; if False, other keys of the same image count like any entry.
        unit: "row" or "own key", see above.
    """
    coarse, fine = labels.of(bank_index)
    # an entry is never its own neighbour: positions in the bank identify it among keys of the same image
    index = bank_index if exclude_own_keys else torch.arange(len(bank_index), device=bank_index.device)
    tensors = (bank_keys, bank_keys, coarse, coarse, fine, fine)
    return bound_distances(recipes, *tensors, index=index, bank_index=index, unit=unit)


def lipschitz_constant(bank_size: int, contrast_temperature: float) -> float:
    """Return lambda of the theorem: an upper bound of ``||log q||_2`` over all unit queries and keys.

    Cosines lie in -1..1, so no logit is more than 2 / tau0 above another, and -log q_j <= log(1+K) + 2 / tau0.

    >>> round(lipschitz_constant(8192, 0.1))
    2626
    """
    if bank_size < 0 or not contrast_temperature > 0:
        raise ValueError(f"{bank_size=} must be >= 0 and {contrast_temperature=} above 0")
    return math.sqrt(1 + bank_size) * (math.log(1 + bank_size) + 2 / contrast_temperature)


def _relation(method: Method, inputs: RelationInputs, unit: Unit) -> Tensor:
    """Return the method's relation ``[B, 1+K]`` in a unit."""
    assert method.relation is not None  # checked by `_contrastive`
    if unit == "row":
        return method.relation(inputs)
    # w mixes divided rows; undivided rows are mixed again here, with own key 1
    relation = _undivided(method.relation(replace(inputs, w=1.0)))
    if method.uses_w:
        relation[:, OWN_KEY + 1 :] *= inputs.w
    return relation


def _undivided(relation: Tensor) -> Tensor:
    """Scale rows of ``[B, 1+K]`` to own key 1."""
    return relation / relation[:, OWN_KEY : OWN_KEY + 1]


def _contrastive(method: str | Method) -> Method:
    found = method_named(method) if isinstance(method, str) else method
    if found.relation is None:
        raise UsageError(f"{found.title} trains without contrast: it has no relations, and so no d_z")
    return found


def _check_shapes(rows: tuple[Tensor | None, ...], bank: tuple[Tensor | None, ...]) -> None:
    for what, tensors in (("the rows", rows), ("the bank", bank)):
        counts = [len(tensor) for tensor in tensors if tensor is not None]
        if len(set(counts)) > 1:
            raise ValueError(f"keys, coarse, fine and index of {what} differ in length: {counts}")
    if rows[0] is None or len(rows[0]) == 0:
        raise ValueError("d_z is a mean over samples and needs at least one")

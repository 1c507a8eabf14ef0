"""Contrastive loss against soft positive weights z (eq. 5).

    L_i     = - sum_j z_ij log softmax([q_i . k_i, q_i . bank] / tau0)_j
    dL_i/dq = (sum_j z_ij * E_softmax[k] - sum_j z_ij k_j) / tau0                [D]

Only queries get a gradient: keys come from the momentum encoder, and z is a target. The gradient of a row is known
together with its loss, so the batch is processed in blocks of rows, and backward keeps [B, D] instead of [B, 1+K].

L is linear in z: ``w * L(z1) + (1-w) * L(z2) = L(w * z1 + (1-w) * z2)``. Methods mix relations instead of losses.

Shapes: B batch, K bank, D projection, b rows of one block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from maskcon.methods.relations import OWN_KEY

BLOCK_ELEMENTS = 1 << 21  # logits per block of rows: 8 MB of float32


def relation_loss(
    queries: Tensor,
    keys: Tensor,
    bank_keys: Tensor,
    relation: Tensor | Callable[[slice], Tensor],
    temperature: float,
    left_out: Callable[[slice], Tensor | None] | None = None,
) -> Tensor:
    """Compute the contrastive cross-entropy of each query against its relation.

    SelfCon is this loss with `self_relation` (InfoNCE), SupCon with `coarse_relation`, MaskCon with
    `masked_relation`.

    Args:
        queries: l2-normalised queries, ``[B, D]``.
        keys: l2-normalised own keys, row by row, ``[B, D]``; detached.
        bank_keys: l2-normalised keys of the bank, ``[K, D]``; detached. K may be 0.
        relation: target z, ``[B, 1+K]``, own key in column 0 (see `maskcon.methods.relations`). A row with sum s
            has weight s. To save memory, pass a function from a slice of the batch to its rows ``[b, 1+K]``; it is
            called once per block, without gradient.
        temperature: tau0 > 0.
        left_out: function from a slice of the batch to the bank entries, bool ``[b, K]``, that the softmax omits; their
            z must be 0.

    Returns:
        Loss of each row, float32 ``[B]``, not averaged.

    Example:
        >>> from maskcon.methods.relations import coarse_relation, self_relation
        >>> q = torch.nn.functional.normalize(torch.randn(4, 8), dim=1)
        >>> relation_loss(q, q, torch.empty(0, 8), self_relation(4, 0), temperature=0.1)
        tensor([0., 0., 0., 0.])
        >>> labels, bank_labels = torch.tensor([0, 1, 0, 1]), torch.tensor([0, 1, 1])
        >>> relation_loss(q, q, q[:3], lambda rows: coarse_relation(labels[rows], bank_labels), 0.1).shape
        torch.Size([4])
    """
    if not temperature > 0:
        raise ValueError(f"{temperature=} of the contrast must be > 0")
    if keys.shape != queries.shape or bank_keys.shape[1:] != queries.shape[1:]:
        raise ValueError(
            f"queries {tuple(queries.shape)}, keys {tuple(keys.shape)} and bank_keys {tuple(bank_keys.shape)} "
            "must be [B, D], [B, D] and [K, D]"
        )
    if keys.requires_grad or bank_keys.requires_grad:
        raise ValueError(
            "only queries get a gradient; pass keys.detach() and bank_keys.detach(), "
            "or make the keys with MomentumPair.encode_keys"
        )
    if isinstance(relation, Tensor):
        _check_relation(relation, len(queries), len(bank_keys))
    rows_of = relation.__getitem__ if isinstance(relation, Tensor) else relation
    with torch.autocast(queries.device.type, enabled=False):
        loss: Tensor = _RelationLoss.apply(
            queries.float(), keys.float(), bank_keys.float(), rows_of, temperature, left_out
        )  # type: ignore[no-untyped-call]
    return loss


def finest_cross_entropy(logits: Tensor, coarse: Tensor, names: Tensor, coarse_of: Tensor) -> Tensor:
    """Compute the cross-entropy of the finest known labels, float32 ``[B]``.

        L_i = - log softmax(logits_i)_{n_i}                           image i has a name n_i
        L_i = - log sum_{c: class of c = y_i} softmax(logits_i)_c     it has none: its coarse class y_i as a whole

    Args:
        logits: ``[B, C]``: one output per name, then one per coarse class for what has no name there.
        coarse: labels, ``[B]``.
        names: known kinds, ``[B]``, negative: none.
        coarse_of: coarse class of each output, ``[C]``.

    >>> logits = torch.tensor([[2.0, 0.0, 0.0, 0.0]])
    >>> of = torch.tensor([0, 0, 0, 1])
    >>> [round(finest_cross_entropy(logits, torch.tensor([0]), torch.tensor([n]), of).item(), 3) for n in (0, -1)]
    [0.341, 0.101]
    """
    outputs = torch.arange(logits.shape[1], device=logits.device)
    allowed = torch.where(
        (names >= 0).unsqueeze(1), outputs == names.unsqueeze(1), coarse_of == coarse.unsqueeze(1)
    )  # [B, C]
    log_shares = torch.log_softmax(logits.float(), dim=1)
    return -log_shares.masked_fill(~allowed, -torch.inf).logsumexp(dim=1)


class _RelationLoss(torch.autograd.Function):
    """Loss by blocks of rows; forward saves only the gradient of the queries."""

    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        keys: Tensor,
        bank: Tensor,
        rows_of: Callable[[slice], Tensor],
        temperature: float,
        left_out: Callable[[slice], Tensor | None] | None,
    ) -> Tensor:
        batch = len(queries)
        block = max(1, BLOCK_ELEMENTS // (1 + len(bank)))
        losses = queries.new_empty(batch)
        gradients = torch.empty_like(queries) if ctx.needs_input_grad[0] else None  # [B, D]
        for start in range(0, batch, block):
            rows = slice(start, min(start + block, batch))
            relation = rows_of(rows)  # [b, 1+K]
            _check_relation(relation, rows.stop - start, len(bank))
            losses[rows], gradient = _block_loss(
                queries[rows],
                keys[rows],
                bank,
                relation.float(),
                temperature,
                None if left_out is None else left_out(rows),
                gradients is not None,
            )
            if gradients is not None and gradient is not None:
                gradients[rows] = gradient
        ctx.save_for_backward(gradients)
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (gradients,) = ctx.saved_tensors
        return grad.unsqueeze(1) * gradients, None, None, None, None, None


def _block_loss(
    queries: Tensor,
    keys: Tensor,
    bank: Tensor,
    relation: Tensor,
    temperature: float,
    left_out: Tensor | None,
    want_gradient: bool,
) -> tuple[Tensor, Tensor | None]:
    """Compute the losses ``[b]`` of a block and, if wanted, its gradients ``[b, D]``."""
    logits = queries.new_empty(len(queries), 1 + len(bank))  # [b, 1+K]
    logits[:, OWN_KEY] = torch.linalg.vecdot(queries, keys)
    torch.mm(queries, bank.T, out=logits[:, 1:])
    logits.div_(temperature)
    weight = relation.sum(dim=1)  # [b], 1 for a normalised relation
    attraction = torch.linalg.vecdot(relation, logits)  # [b]
    if left_out is not None:
        logits[:, 1:].masked_fill_(left_out, -torch.inf)
    softmax = torch.softmax(logits, dim=1)  # [b, 1+K]
    # logsumexp from the softmax: saves a second exponential of every logit
    log_total = logits.amax(dim=1) - softmax.amax(dim=1).log()  # [b]
    loss = weight * log_total - attraction
    if not want_gradient:
        return loss, None
    pull = softmax.mul_(weight.unsqueeze(1)).sub_(relation)  # [b, 1+K], gradient of the logits
    return loss, torch.addmm(pull[:, :1] * keys, pull[:, 1:], bank).div_(temperature)


def _check_relation(relation: Tensor, rows: int, bank: int) -> None:
    if relation.shape != (rows, 1 + bank):
        raise ValueError(f"relation is {tuple(relation.shape)}, expected {(rows, 1 + bank)} = [B, 1+K]")
    if relation.requires_grad:
        raise ValueError("the relation is a target and gets no gradient; pass relation.detach()")

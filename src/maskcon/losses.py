"""Cross-entropy of a query's similarities against a relation: the contrastive loss of the paper (eq. 5).

    L_i = - sum_j z_ij log softmax([q_i . k_i, q_i . bank] / tau0)_j

Written as ``sum_j z_ij * logsumexp(logits_i) - q_i . (sum_j z_ij k_j) / tau0`` it needs no array of logits as
large as the relation: they are visited in column blocks of `BLOCK_ELEMENTS`, going forward and again going back.
The loss is linear in the relation, so ``w * loss(z1) + (1 - w) * loss(z2)`` is ``loss(w * z1 + (1 - w) * z2)``,
and the methods mix relations instead of losses.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK_ELEMENTS = 1 << 22  # logits held at once: 16 MB of float32


def relation_loss(
    queries: Tensor, keys: Tensor, bank_keys: Tensor, relation: Tensor, temperature: float
) -> Tensor:
    """Contrastive cross-entropy of each query against its relation.

    Args:
        queries: l2-normalised queries, ``[B, D]``.
        keys: l2-normalised own keys, row for row, ``[B, D]``.
        bank_keys: l2-normalised keys of the bank, ``[K, D]``; K may be 0.
        relation: target, ``[B, 1+K]``, own key in column 0 (see `maskcon.relations`). A constant: it gets
            no gradient. Rows need not sum to 1; a row of sum s weighs s times.
        temperature: tau0 > 0.

    Returns:
        Loss of each row, float32 ``[B]``; take the mean yourself. Gradients reach queries, keys and bank.

    Example:
        >>> from maskcon.relations import self_relation
        >>> q = torch.nn.functional.normalize(torch.randn(4, 8), dim=1)
        >>> relation_loss(q, q, torch.empty(0, 8), self_relation(4, 0), temperature=0.1)
        tensor([0., 0., 0., 0.])

    SelfCon is this loss with `self_relation` (InfoNCE), SupCon with `coarse_relation`, MaskCon with
    `masked_relation`.
    """
    batch, bank = queries.shape[0], bank_keys.shape[0]
    if not temperature > 0:
        raise ValueError(f"{temperature=} of the contrast must be > 0")
    if keys.shape != queries.shape or bank_keys.shape[1:] != queries.shape[1:]:
        raise ValueError(
            f"queries {tuple(queries.shape)}, keys {tuple(keys.shape)} and bank_keys {tuple(bank_keys.shape)} "
            "must be [B, D], [B, D] and [K, D]"
        )
    if relation.shape != (batch, 1 + bank):
        raise ValueError(f"relation is {tuple(relation.shape)}, expected {(batch, 1 + bank)} = [B, 1+K]")
    if relation.requires_grad:
        raise ValueError("the relation is a target and gets no gradient; pass relation.detach()")
    with torch.autocast(queries.device.type, enabled=False):
        loss: Tensor = _RelationLoss.apply(
            queries.float(), keys.float(), bank_keys.float(), relation.float(), temperature
        )  # type: ignore[no-untyped-call]
    return loss


class _RelationLoss(torch.autograd.Function):
    """Blocks of bank columns; keeps the softmax when it fits one block, else makes it again going back."""

    @staticmethod
    def forward(
        ctx: Any, queries: Tensor, keys: Tensor, bank: Tensor, relation: Tensor, temperature: float
    ) -> Tensor:
        own = (queries * keys).sum(dim=1, keepdim=True) / temperature  # [B, 1]
        block = _block_columns(queries, bank)
        total = own  # running logsumexp, [B, 1]
        attracted = relation[:, :1] * keys + relation[:, 1:] @ bank  # [B, D]: where each query is pulled
        logits = None
        for start in range(0, len(bank), block):
            logits = (queries @ bank[start : start + block].T).div_(temperature)  # [B, block]
            total = torch.logaddexp(total, torch.logsumexp(logits, dim=1, keepdim=True))
        weight = relation.sum(dim=1)  # [B], 1 for a normalised relation
        ctx.temperature, ctx.block = temperature, block
        kept = logits.sub_(total).exp_() if logits is not None and len(bank) <= block else None
        ctx.save_for_backward(queries, keys, bank, relation, own, total, attracted, weight, kept)
        return weight * total.squeeze(1) - (queries * attracted).sum(dim=1) / temperature

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        queries, keys, bank, relation, own, total, attracted, weight, kept = ctx.saved_tensors
        need_queries, need_keys, need_bank = ctx.needs_input_grad[:3]
        scale = (grad / ctx.temperature).unsqueeze(1)  # [B, 1]
        weight = weight.unsqueeze(1)
        own_share = (own - total).exp()  # [B, 1], softmax in the own column
        expected = own_share * keys  # sum_j softmax_j k_j, [B, D]
        grad_bank = torch.zeros_like(bank) if need_bank else None
        for start in range(0, len(bank), ctx.block):
            part = bank[start : start + ctx.block]
            share = kept if kept is not None else ((queries @ part.T) / ctx.temperature - total).exp_()
            expected = torch.addmm(expected, share, part)
            if grad_bank is not None:
                pull = weight * share - relation[:, 1 + start : 1 + start + len(part)]  # [B, block]
                grad_bank[start : start + len(part)] = (scale * pull).T @ queries
        grad_queries = scale * (weight * expected - attracted) if need_queries else None
        grad_keys = scale * (weight * own_share - relation[:, :1]) * queries if need_keys else None
        return grad_queries, grad_keys, grad_bank, None, None


def _block_columns(queries: Tensor, bank: Tensor) -> int:
    """Columns of the bank to visit at once so that a block of logits stays within `BLOCK_ELEMENTS`."""
    return max(1, min(len(bank), BLOCK_ELEMENTS // max(1, len(queries))))

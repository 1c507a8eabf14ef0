"""Cross-entropy of a query's similarities against a relation: the contrastive loss of the paper (eq. 5).

    L_i = - sum_j z_ij log softmax([q_i . k_i, q_i . bank] / tau0)_j

Rows do not touch each other, and the gradient of a query is known as soon as its loss is:

    dL_i / dq_i = (sum_j z_ij * E_softmax[k] - sum_j z_ij k_j) / tau0                                       [D]

So rows are visited in blocks of `BLOCK_ELEMENTS` logits, each block leaves a loss and a gradient a row, and nothing
as large as the relation is kept for going back (`relation_loss_by_rows` does not even need it whole). Only where keys
or bank want gradients too, which training never asks, are the logits made again going back.
The loss is linear in the relation, so ``w * loss(z1) + (1 - w) * loss(z2)`` is ``loss(w * z1 + (1 - w) * z2)``,
and the methods mix relations instead of losses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK_ELEMENTS = 1 << 21  # logits held at once: 8 MB of float32


def relation_loss(
    queries: Tensor, keys: Tensor, bank_keys: Tensor, relation: Tensor, temperature: float
) -> Tensor:
    """Contrastive cross-entropy of each query against its relation.

    Args:
        queries: l2-normalised queries, ``[B, D]``.
        keys: l2-normalised own keys, row for row, ``[B, D]``.
        bank_keys: l2-normalised keys of the bank, ``[K, D]``; K may be 0.
        relation: target, ``[B, 1+K]``, own key in column 0 (see `maskcon.methods.relations`). A constant: it gets
            no gradient. Rows need not sum to 1; a row of sum s weighs s times.
        temperature: tau0 > 0.

    Returns:
        Loss of each row, float32 ``[B]``; take the mean yourself. Gradients reach queries, keys and bank.

    Example:
        >>> from maskcon.methods.relations import self_relation
        >>> q = torch.nn.functional.normalize(torch.randn(4, 8), dim=1)
        >>> relation_loss(q, q, torch.empty(0, 8), self_relation(4, 0), temperature=0.1)
        tensor([0., 0., 0., 0.])

    SelfCon is this loss with `self_relation` (InfoNCE), SupCon with `coarse_relation`, MaskCon with
    `masked_relation`.
    """
    _check(queries, keys, bank_keys, temperature)
    _check_relation(relation, len(queries), len(bank_keys))
    if not (keys.requires_grad or bank_keys.requires_grad):
        return relation_loss_by_rows(queries, keys, bank_keys, relation.__getitem__, temperature)
    with torch.autocast(queries.device.type, enabled=False):
        loss: Tensor = _RelationLoss.apply(
            queries.float(), keys.float(), bank_keys.float(), relation.float(), temperature
        )  # type: ignore[no-untyped-call]
    return loss


def relation_loss_by_rows(
    queries: Tensor,
    keys: Tensor,
    bank_keys: Tensor,
    relation_of: Callable[[slice], Tensor],
    temperature: float,
) -> Tensor:
    """`relation_loss`, where the relation is asked for in blocks of rows and never held whole.

    Args:
        queries, keys, bank_keys, temperature: as in `relation_loss`, but only the queries get a gradient.
        relation_of: gives the rows ``[b, 1+K]`` of the relation in a slice of the batch. It is called while the loss
            is computed, once a block, without gradient; a batch that fits into `BLOCK_ELEMENTS` is one block.

    Returns:
        Loss of each row, float32 ``[B]``.

    Example:
        >>> from maskcon.methods.relations import coarse_relation
        >>> q = torch.nn.functional.normalize(torch.randn(4, 8), dim=1)
        >>> labels, bank_labels = torch.tensor([0, 1, 0, 1]), torch.tensor([0, 1, 1])
        >>> relation_loss_by_rows(q, q, q[:3], lambda rows: coarse_relation(labels[rows], bank_labels), 0.1).shape
        torch.Size([4])
    """
    _check(queries, keys, bank_keys, temperature)
    if keys.requires_grad or bank_keys.requires_grad:
        raise ValueError(
            "by rows only the queries get a gradient; detach keys and bank, or use relation_loss"
        )
    with torch.autocast(queries.device.type, enabled=False):
        loss: Tensor = _LossByRows.apply(
            queries.float(), keys.float(), bank_keys.float(), relation_of, temperature
        )  # type: ignore[no-untyped-call]
    return loss


class _LossByRows(torch.autograd.Function):
    """Blocks of rows; the gradient of the queries is ready when the loss is, and is all that is kept."""

    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        keys: Tensor,
        bank: Tensor,
        relation_of: Callable[[slice], Tensor],
        temperature: float,
    ) -> Tensor:
        batch = len(queries)
        block = max(1, BLOCK_ELEMENTS // (1 + len(bank)))
        losses = queries.new_empty(batch)
        gradients = torch.empty_like(queries) if ctx.needs_input_grad[0] else None  # [B, D]
        for start in range(0, batch, block):
            rows = slice(start, min(start + block, batch))
            relation = relation_of(rows)  # [b, 1+K]
            _check_relation(relation, rows.stop - start, len(bank))
            losses[rows], pull = _rows_of_loss(
                queries[rows], keys[rows], bank, relation.float(), temperature, gradients is not None
            )
            if gradients is not None and pull is not None:
                gradients[rows] = pull
        ctx.save_for_backward(gradients)
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (gradients,) = ctx.saved_tensors
        return grad.unsqueeze(1) * gradients, None, None, None, None


def _rows_of_loss(
    queries: Tensor, keys: Tensor, bank: Tensor, relation: Tensor, temperature: float, want_gradient: bool
) -> tuple[Tensor, Tensor | None]:
    """Losses ``[b]`` of some rows and, if wanted, their gradients by the queries ``[b, D]``.

    Two arrays ``[b, 1+K]``: the logits, and their softmax, which becomes the weight by which each key pulls.
    """
    logits = queries.new_empty(len(queries), 1 + len(bank))  # [b, 1+K]
    logits[:, 0] = torch.linalg.vecdot(queries, keys)
    torch.mm(queries, bank.T, out=logits[:, 1:])
    logits.div_(temperature)
    weight = relation.sum(dim=1)  # [b], 1 for a normalised relation
    related = torch.linalg.vecdot(relation, logits)  # [b]
    top = logits.amax(dim=1)
    softmax = torch.softmax(logits, dim=1)
    log_total = (
        top - softmax.amax(dim=1).log()
    )  # logsumexp of the logits, without another exponential of each
    loss = weight * log_total - related
    if not want_gradient:
        return loss, None
    pull = softmax.mul_(weight.unsqueeze(1)).sub_(relation)  # [b, 1+K]
    return loss, torch.addmm(pull[:, :1] * keys, pull[:, 1:], bank).div_(temperature)


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


def _check(queries: Tensor, keys: Tensor, bank_keys: Tensor, temperature: float) -> None:
    if not temperature > 0:
        raise ValueError(f"{temperature=} of the contrast must be > 0")
    if keys.shape != queries.shape or bank_keys.shape[1:] != queries.shape[1:]:
        raise ValueError(
            f"queries {tuple(queries.shape)}, keys {tuple(keys.shape)} and bank_keys {tuple(bank_keys.shape)} "
            "must be [B, D], [B, D] and [K, D]"
        )


def _check_relation(relation: Tensor, rows: int, bank: int) -> None:
    if relation.shape != (rows, 1 + bank):
        raise ValueError(f"relation is {tuple(relation.shape)}, expected {(rows, 1 + bank)} = [B, 1+K]")
    if relation.requires_grad:
        raise ValueError("the relation is a target and gets no gradient; pass relation.detach()")

"""The row `loss_memory`: peak memory and time of relation and loss against full matrices."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from maskcon.methods.losses import relation_loss
from maskcon.methods.registry import RelationInputs, method_named

from .figures import Row
from .measure import ON_ONE_THREAD, Effort, in_fresh_process, in_turns, peak_extra_bytes
from .plain import plain_loss, plain_relation

BATCHES, BANKS = (128, 1024), (8192, 65536)
DIMENSION, CLASSES = 128, 20
TAU, TEMPERATURE = 0.05, 0.1
TIMED = ((128, 8192), (1024, 65536))
Inputs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def loss_memory(effort: Effort) -> Row:
    """Peak megabytes over those of full matrices, each in a fresh process; lower is better."""
    row: Row = {}
    sizes = [(batch, bank) for batch in BATCHES for bank in BANKS]
    for batch, bank in sizes[-1:] if effort.quick else sizes:
        megabytes = {
            form: in_fresh_process(f"{__name__}:peak_megabytes", form=form, batch=batch, bank=bank)
            for form in FORMS
        }
        row[f"ratio_b{batch}_k{bank}"] = megabytes["ours"] / megabytes["written_out"]
        row |= {f"{form}_mb_b{batch}_k{bank}": spent for form, spent in megabytes.items()}
    if not effort.quick:
        row |= _growth(row)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for batch, bank in TIMED[: 1 if effort.quick else 2]:
            inputs = make_inputs(batch, bank)
            turns = in_turns(
                {form: partial(work, inputs) for form, work in FORMS.items()},
                effort.turns(9 if batch * bank < 1 << 22 else 3),
                clock=ON_ONE_THREAD,
            )
            row[f"seconds_b{batch}_k{bank}"] = turns.median("ours")
            row[f"time_ratio_b{batch}_k{bank}"] = turns.ratio("ours", "written_out")
    finally:
        torch.set_num_threads(threads)
    return row


def _growth(row: Row) -> Row:
    """Growth of our memory with a bank, and with a batch, eight times as large."""

    def ours(batch: int, bank: int) -> float:
        return max(float(row[f"ours_mb_b{batch}_k{bank}"] or 0), 0.1)

    (small_batch, large_batch), (small_bank, large_bank) = BATCHES, BANKS
    return {
        f"growth_with_bank_b{large_batch}": ours(large_batch, large_bank) / ours(large_batch, small_bank),
        f"growth_with_batch_k{large_bank}": ours(large_batch, large_bank) / ours(small_batch, large_bank),
    }


def make_inputs(batch: int, bank: int) -> Inputs:
    """Unit queries, keys and bank; labels and sample numbers of the batch and of the bank."""
    generator = torch.Generator().manual_seed(0)
    queries, keys, bank_keys = (
        torch.nn.functional.normalize(torch.randn(count, DIMENSION, generator=generator), dim=1)
        for count in (batch, batch, bank)
    )
    labels, bank_labels = (torch.randint(CLASSES, (count,), generator=generator) for count in (batch, bank))
    return queries, keys, bank_keys, labels, bank_labels, torch.arange(batch), torch.arange(bank) + batch // 2


def ours(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """MaskCon's mean loss as a training step computes it, and its gradient for the queries."""
    queries, keys, bank_keys, labels, bank_labels, index, bank_index = inputs
    free = queries.detach().requires_grad_()
    related = RelationInputs(keys, labels, index, bank_keys, bank_labels, bank_index, w=1.0, tau=TAU)
    relation_of = method_named("maskcon").relation_of(related)
    loss = relation_loss(free, keys, bank_keys, relation_of, TEMPERATURE).mean()
    (gradient,) = torch.autograd.grad(loss, free)
    return loss.detach(), gradient


def written_out(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """The same with every [B, 1+K] matrix in memory."""
    queries, keys, bank_keys, labels, bank_labels, index, bank_index = inputs
    free = queries.detach().requires_grad_()
    with torch.no_grad():
        other = index[:, None] != bank_index[None, :]
        relation = plain_relation(keys, bank_keys, labels, bank_labels, other, w=1.0, tau=TAU)
        del other
    loss = plain_loss(free, keys, bank_keys, relation, TEMPERATURE)
    (gradient,) = torch.autograd.grad(loss, free)
    return loss.detach(), gradient


FORMS = {"ours": ours, "written_out": written_out}


def peak_megabytes(form: str, batch: int, bank: int) -> float:
    """Return the peak of one call beyond its inputs. Runs in a fresh process."""
    torch.set_num_threads(1)
    FORMS[form](make_inputs(8, 64))  # memory of the libraries themselves is not counted
    inputs = make_inputs(batch, bank)
    return peak_extra_bytes(lambda: FORMS[form](inputs)) / 1e6

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch

from maskcon.transforms.buffers import KEPT, Lender


def place(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def test_memory_is_used_again_once_its_tensor_is_gone() -> None:
    lender = Lender()
    first = lender.lend(4, 1000)
    where = place(first)
    del first
    assert place(lender.lend(4, 1000)) == where
    assert place(lender.lend(3, 1000)) == where  # a shorter batch too


@pytest.mark.parametrize(
    "hold",
    [
        lambda tensor: tensor,
        lambda tensor: tensor[2:, ::7],
        lambda tensor: tensor.view(2, 2, 1000).permute(0, 2, 1),
        lambda tensor: tensor.detach(),
        lambda tensor: tensor.numpy()[1],
        lambda tensor: np.from_dlpack(tensor),
        lambda tensor: tensor.untyped_storage(),
        lambda tensor: torch.zeros(4, 1000, requires_grad=True) * tensor,  # kept for the backward pass
    ],
)
def test_memory_that_is_still_looked_at_is_not_lent_again(hold) -> None:
    lender = Lender()
    lent = lender.lend(4, 1000).fill_(1.0)
    where, held = place(lent), hold(lent)
    del lent
    gc.collect()
    others = [lender.lend(4, 1000) for _ in range(KEPT + 2)]
    assert where not in {place(other) for other in others}
    del held
    gc.collect()
    assert place(lender.lend(4, 1000)) == where


def test_no_more_is_kept_than_stated_and_small_blocks_give_way() -> None:
    lender = Lender()
    many = [lender.lend(2, 500) for _ in range(KEPT + 3)]
    del many
    assert [len(block) for block in lender._kept] == [1000] * KEPT
    large = lender.lend(9, 500)
    del large
    assert [len(block) for block in lender._kept] == [4500]


def test_an_empty_batch_can_be_lent() -> None:
    assert Lender().lend(0, 12).shape == (0, 12)


def test_a_tensor_outlives_its_lender() -> None:
    lent = Lender().lend(2, 3).fill_(5.0)
    gc.collect()
    assert lent.sum() == 30

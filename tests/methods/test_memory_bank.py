from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from maskcon.methods.memory_bank import EMPTY, MemoryBank
from tests.oracles import ListBank


def batch_of(start: int, count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    numbers = torch.arange(start, start + count)
    return torch.stack([numbers.float(), -numbers.float()], 1), numbers % 5, numbers


@settings(deadline=None, max_examples=150)
@given(st.integers(1, 12), st.lists(st.integers(0, 30), max_size=8))
def test_bank_holds_the_last_entries_for_any_batch_sizes(size, batches):
    bank, oracle = MemoryBank(size, 2), ListBank(size)
    start = 0
    for count in batches:
        rows = batch_of(start, count)
        bank.enqueue(*rows)
        oracle.enqueue(*rows)
        start += count
        held = {
            (tuple(key), label, number)
            for key, label, number in zip(
                bank.keys.tolist(), bank.coarse.tolist(), bank.index.tolist(), strict=True
            )
        }
        assert len(bank) == len(oracle.entries)
        assert held == set(oracle.entries)


def test_oldest_entries_are_overwritten_first():
    bank = MemoryBank(5, 2)
    bank.enqueue(*batch_of(0, 3))
    bank.enqueue(*batch_of(3, 4))
    assert bank.index.tolist() == [5, 6, 2, 3, 4]


def test_a_bank_not_yet_full_shows_only_what_it_holds():
    bank = MemoryBank(100, 2)
    assert len(bank) == 0
    assert bank.keys.shape == (0, 2)
    bank.enqueue(*batch_of(0, 7))
    assert bank.keys.shape == (7, 2)
    assert EMPTY not in bank.coarse.tolist()


def test_everything_survives_a_state_dict_round_trip():
    bank = MemoryBank(5, 2)
    bank.enqueue(*batch_of(0, 8))
    other = MemoryBank(5, 2)
    other.load_state_dict(bank.state_dict())
    for rows in (batch_of(8, 3), batch_of(11, 4)):
        bank.enqueue(*rows)
        other.enqueue(*rows)
        assert torch.equal(bank.keys, other.keys)
        assert torch.equal(bank.coarse, other.coarse)
        assert torch.equal(bank.index, other.index)


def test_enqueue_keeps_no_graph():
    bank = MemoryBank(5, 2)
    keys = torch.ones(2, 2, requires_grad=True)
    bank.enqueue(keys * 2, torch.zeros(2, dtype=torch.long), torch.arange(2))
    assert not bank.keys.requires_grad


def test_wrong_shapes_are_refused():
    bank = MemoryBank(5, 2)
    with pytest.raises(ValueError, match="enqueue takes"):
        bank.enqueue(torch.ones(3, 4), torch.zeros(3), torch.zeros(3))
    with pytest.raises(ValueError, match="enqueue takes"):
        bank.enqueue(torch.ones(3, 2), torch.zeros(2), torch.zeros(3))


@pytest.mark.parametrize(("size", "dim"), [(0, 4), (4, 0), (-1, 4)])
def test_impossible_sizes_are_refused(size, dim):
    with pytest.raises(ValueError, match="bank needs"):
        MemoryBank(size, dim)


def test_keys_are_float32_whatever_the_default_type():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        assert MemoryBank(4, 2).keys.dtype == torch.float32
    finally:
        torch.set_default_dtype(before)


def test_writing_over_keys_leaves_the_gradient_of_an_earlier_loss_alone():
    from maskcon.methods.losses import relation_loss
    from maskcon.methods.relations import self_relation

    gradients = []
    for overwrites in (False, True):
        bank = MemoryBank(4, 2)
        bank.enqueue(*batch_of(0, 4))
        queries = torch.ones(2, 2, requires_grad=True)
        loss = relation_loss(queries, torch.ones(2, 2), bank.keys, self_relation(2, 4), 0.1).sum()
        if overwrites:
            bank.enqueue(*batch_of(4, 2))
        loss.backward()
        gradients.append(queries.grad)
    assert torch.equal(*gradients)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 12), st.lists(st.integers(0, 30), max_size=8))
def test_what_is_compared_stays_beside_its_key_at_every_wrap_around(size, batches):
    bank = MemoryBank(size, 2, compared_dim=3)
    start = 0
    for count in batches:
        keys, coarse, index = batch_of(start, count)
        bank.enqueue(keys, coarse, index, compared=index.unsqueeze(1).float() * torch.tensor([1.0, 2.0, 3.0]))
        start += count
        assert torch.equal(bank.compared[:, 0], bank.index.float())
        assert torch.equal(bank.compared[:, 2], 3 * bank.keys[:, 0])
    other = MemoryBank(size, 2, compared_dim=3)
    other.load_state_dict(bank.state_dict())
    assert torch.equal(other.compared, bank.compared)


def test_a_bank_compares_its_keys_unless_told_otherwise():
    bank = MemoryBank(4, 2)
    bank.enqueue(*batch_of(0, 3))
    assert torch.equal(bank.compared, bank.keys)
    assert "_compared" not in bank.state_dict()


@pytest.mark.parametrize(("kept", "given_length"), [(None, 3), (3, None), (3, 2)])
def test_a_bank_takes_what_it_compares_by_and_nothing_else(kept, given_length):
    bank = MemoryBank(4, 2, compared_dim=kept)
    compared = None if given_length is None else torch.ones(2, given_length)
    with pytest.raises(ValueError, match="enqueue expects compared of shape"):
        bank.enqueue(*batch_of(0, 2), compared)
    assert len(bank) == 0


def test_what_is_compared_can_be_replaced_in_the_order_of_the_bank():
    bank = MemoryBank(4, 2, compared_dim=3)
    bank.enqueue(*batch_of(0, 3), torch.zeros(3, 3))
    replaced = torch.arange(9.0).view(3, 3)
    bank.compare_by(replaced)
    assert torch.equal(bank.compared, replaced)
    with pytest.raises(ValueError, match=r"expects vectors of shape \(3, 3\), got \(4, 3\)"):
        bank.compare_by(torch.zeros(4, 3))
    with pytest.raises(ValueError, match="this bank has compared_dim=None"):
        MemoryBank(4, 2).compare_by(torch.zeros(0, 3))


def test_vectors_of_one_number_can_be_compared_and_of_none_cannot():
    assert MemoryBank(2, 1, compared_dim=1).compared.shape == (0, 1)
    with pytest.raises(ValueError, match="compared_dim=0"):
        MemoryBank(2, 2, compared_dim=0)


def test_every_buffer_is_made_on_the_device_in_its_type():
    found = MemoryBank(3, 2, compared_dim=2, device="meta").state_dict()
    assert {value.device.type for value in found.values()} == {"meta"}
    types = {name: value.dtype for name, value in found.items()}
    assert types == dict.fromkeys(("_coarse", "_index", "_state"), torch.int64) | dict.fromkeys(
        ("_keys", "_compared"), torch.float32
    )

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from maskcon.methods import losses
from maskcon.methods.losses import relation_loss
from maskcon.methods.relations import masked_relation, self_relation
from tests import oracles


def random_case(seed: int, batch: int, bank: int, dim: int = 5, dtype: torch.dtype = torch.float32):
    generator = torch.Generator().manual_seed(seed)
    unit = lambda n: torch.nn.functional.normalize(  # noqa: E731
        torch.randn(n, dim, generator=generator, dtype=dtype), dim=1
    )
    relation = torch.rand(batch, 1 + bank, generator=generator)
    return unit(batch), unit(batch), unit(bank), relation / relation.sum(1, keepdim=True)


@settings(deadline=None, max_examples=80)
@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(0, 9), st.sampled_from([0.01, 0.1, 1.0]))
def test_relation_loss_matches_loop_oracle(seed, batch, bank, tau0):
    queries, keys, bank_keys, relation = random_case(seed, batch, bank)
    loss = relation_loss(queries, keys, bank_keys, relation, tau0)
    assert loss.shape == (batch,)
    for i in range(batch):
        expected = oracles.loss_row(
            queries[i].tolist(), keys[i].tolist(), bank_keys.tolist(), relation[i].tolist(), tau0
        )
        assert loss[i].item() == pytest.approx(expected, abs=2e-4, rel=1e-4)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(0, 9), st.sampled_from([1, 3, 1 << 22]))
def test_gradients_match_autograd_for_any_block_size(seed, batch, bank, block):
    queries, keys, bank_keys, relation = random_case(seed, batch, bank)
    ours, theirs = (queries.clone().requires_grad_() for _ in range(2))
    scale = torch.rand(batch, generator=torch.Generator().manual_seed(seed))
    before = losses.BLOCK_ELEMENTS
    losses.BLOCK_ELEMENTS = block
    try:
        loss = relation_loss(ours, keys, bank_keys, relation, 0.1)
        (loss * scale).sum().backward()
    finally:
        losses.BLOCK_ELEMENTS = before
    expected = oracles.relation_loss_by_autograd(theirs, keys, bank_keys, relation, 0.1)
    (expected * scale).sum().backward()
    torch.testing.assert_close(loss, expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-4, rtol=1e-4)


def test_loss_is_linear_in_the_relation_so_mixing_relations_mixes_losses():
    queries, keys, bank_keys, soft = random_case(1, batch=4, bank=6)
    hard = self_relation(4, 6)
    loss = lambda z: relation_loss(queries, keys, bank_keys, z, 0.1)  # noqa: E731
    torch.testing.assert_close(loss(0.3 * soft + 0.7 * hard), 0.3 * loss(soft) + 0.7 * loss(hard))


def test_self_relation_gives_infonce():
    queries, keys, bank_keys, _ = random_case(2, batch=4, bank=6)
    logits = torch.cat([(queries * keys).sum(1, keepdim=True), queries @ bank_keys.T], 1) / 0.1
    infonce = torch.nn.functional.cross_entropy(logits, torch.zeros(4, dtype=torch.long), reduction="none")
    torch.testing.assert_close(relation_loss(queries, keys, bank_keys, self_relation(4, 6), 0.1), infonce)


def test_collapsed_embeddings_give_log_of_one_plus_bank_size_for_any_relation():
    one = torch.nn.functional.normalize(torch.ones(1, 5), dim=1)
    _, _, _, relation = random_case(3, batch=4, bank=6)
    loss = relation_loss(one.expand(4, 5), one.expand(4, 5), one.expand(6, 5), relation, 0.1)
    torch.testing.assert_close(loss, torch.full((4,), math.log(7)))


def test_loss_is_float32_and_equal_under_autocast():
    queries, keys, bank_keys, relation = random_case(4, batch=4, bank=6)
    outside = relation_loss(queries, keys, bank_keys, relation, 0.1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = relation_loss(queries, keys, bank_keys, relation, 0.1)
    assert inside.dtype == torch.float32
    assert torch.equal(inside, outside)


def test_extreme_temperature_stays_finite():
    queries, keys, bank_keys, relation = random_case(5, batch=4, bank=6)
    assert torch.isfinite(relation_loss(queries, keys, bank_keys, relation, 1e-4)).all()


def test_training_on_masked_relations_pulls_a_query_to_its_positives():
    torch.manual_seed(0)
    queries, keys, bank_keys, _ = random_case(6, batch=3, bank=30)
    relation = masked_relation(keys, bank_keys, torch.arange(3), torch.arange(30) % 3, 0.1)
    free = queries.clone().requires_grad_()
    optimizer = torch.optim.SGD([free], lr=0.5)
    first = None
    for _ in range(50):
        unit = torch.nn.functional.normalize(free, dim=1)
        loss = relation_loss(unit, keys, bank_keys, relation, 0.5).mean()
        first = loss.item() if first is None else first
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < first - 0.05


@pytest.mark.parametrize("tau0", [0.0, -1.0, math.nan])
def test_contrast_temperature_must_be_positive(tau0):
    queries, keys, bank_keys, relation = random_case(7, batch=2, bank=3)
    with pytest.raises(ValueError, match="temperature"):
        relation_loss(queries, keys, bank_keys, relation, tau0)


def test_wrong_shapes_are_refused_with_the_shapes():
    queries, keys, bank_keys, relation = random_case(8, batch=2, bank=3)
    with pytest.raises(ValueError, match=r"\(2, 3\).*\(2, 4\)"):
        relation_loss(queries, keys, bank_keys, relation[:, 1:], 0.1)
    with pytest.raises(ValueError, match=r"\[K, D\]"):
        relation_loss(queries, keys, bank_keys[:, 1:], relation, 0.1)


def test_a_relation_that_wants_a_gradient_is_refused():
    queries, keys, bank_keys, relation = random_case(9, batch=2, bank=3)
    with pytest.raises(ValueError, match="target"):
        relation_loss(queries, keys, bank_keys, relation.requires_grad_(), 0.1)


@pytest.mark.parametrize("block", [64, 1 << 22])
def test_nothing_as_large_as_the_relation_is_kept_for_going_back(monkeypatch, block):
    monkeypatch.setattr(losses, "BLOCK_ELEMENTS", block)
    queries, keys, bank_keys, relation = random_case(10, batch=8, bank=100)
    queries.requires_grad_()
    kept: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (kept.append(t), t)[1], lambda t: t):
        relation_loss(queries, keys, bank_keys, relation, 0.1)
    assert [tensor.shape for tensor in kept] == [queries.shape]


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 10_000), st.integers(1, 7), st.integers(0, 9), st.sampled_from([1, 23, 1 << 22]),
    st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
)  # fmt: skip
def test_loss_by_rows_is_the_loss_of_the_whole_relation_for_any_block_size(seed, batch, bank, block, dtype):
    queries, keys, bank_keys, relation = random_case(seed, batch, bank)
    queries, keys, bank_keys, relation = (
        t.to(dtype) for t in (queries, keys, bank_keys, 2 * relation)
    )  # of row sum 2
    ours, theirs = queries.clone().requires_grad_(), queries.float().requires_grad_()
    scale = torch.rand(batch, generator=torch.Generator().manual_seed(seed))
    asked: list[slice] = []
    before = losses.BLOCK_ELEMENTS
    losses.BLOCK_ELEMENTS = block
    try:
        loss = relation_loss(ours, keys, bank_keys, lambda rows: (asked.append(rows), relation[rows])[1], 0.1)
    finally:
        losses.BLOCK_ELEMENTS = before
    (loss * scale).sum().backward()
    expected = oracles.relation_loss_by_autograd(
        theirs, keys.float(), bank_keys.float(), relation.float(), 0.1
    )
    (expected * scale).sum().backward()
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, expected, atol=1e-4, rtol=1e-4)
    assert ours.grad.dtype == dtype
    rounding = max(1e-4, torch.finfo(dtype).eps)
    torch.testing.assert_close(ours.grad.float(), theirs.grad, atol=1e-4, rtol=rounding)
    assert [row for rows in asked for row in range(rows.start, rows.stop)] == list(range(batch))
    assert len(asked) == 1 or all((rows.stop - rows.start - 1) * (1 + bank) < block for rows in asked)


def test_loss_by_rows_never_sees_more_than_a_block_of_the_relation(monkeypatch):
    monkeypatch.setattr(losses, "BLOCK_ELEMENTS", 3 * 101)
    queries, keys, bank_keys, relation = random_case(11, batch=8, bank=100)
    sizes: list[int] = []
    relation_loss(
        queries, keys, bank_keys, lambda rows: (sizes.append(rows.stop - rows.start), relation[rows])[1], 0.1
    )
    assert sizes == [3, 3, 2]


def test_loss_by_rows_without_a_gradient_is_the_same_loss():
    queries, keys, bank_keys, relation = random_case(12, batch=4, bank=6)
    with_gradient = relation_loss(queries.clone().requires_grad_(), keys, bank_keys, relation, 0.1)
    without = relation_loss(queries, keys, bank_keys, relation, 0.1)
    assert not without.requires_grad
    assert torch.equal(with_gradient.detach(), without)


def test_loss_by_rows_refuses_keys_that_want_a_gradient_and_rows_of_another_shape():
    queries, keys, bank_keys, relation = random_case(13, batch=4, bank=6)
    with pytest.raises(ValueError, match=r"keys\.detach"):
        relation_loss(queries, keys.requires_grad_(), bank_keys, relation.__getitem__, 0.1)
    with pytest.raises(ValueError, match=r"keys\.detach"):
        relation_loss(queries, keys.detach(), bank_keys.clone().requires_grad_(), relation, 0.1)
    with pytest.raises(ValueError, match=r"\(4, 6\), expected \(4, 7\)"):
        relation_loss(queries, keys.detach(), bank_keys, lambda rows: relation[rows, 1:], 0.1)


def test_a_relation_with_a_row_too_many_is_refused():
    queries, keys, bank_keys, _ = random_case(1, batch=3, bank=4)
    with pytest.raises(ValueError, match=r"relation is \(4, 5\), expected \(3, 5\)"):
        relation_loss(queries, keys, bank_keys, self_relation(4, 4), 0.1)

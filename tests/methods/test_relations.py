from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from maskcon.methods.relations import (
    OWN_KEY,
    adaptive_relation,
    coarse_relation,
    masked_relation,
    nearest_relation,
    normalised_entropy,
    self_relation,
    similarities,
)
from tests import oracles

TEMPERATURES = [0.0, 0.005, 0.05, 0.1, 0.5, 1.0, 10.0, math.inf]


def random_case(seed: int, batch: int, bank: int, classes: int, dim: int = 4):
    """Unit vectors, labels and sample numbers; numbers repeat, so some bank entries are a row's own stale keys."""
    generator = torch.Generator().manual_seed(seed)
    keys = torch.nn.functional.normalize(torch.randn(batch, dim, generator=generator), dim=1)
    bank_keys = torch.nn.functional.normalize(torch.randn(bank, dim, generator=generator), dim=1)
    coarse = torch.randint(classes, (batch,), generator=generator)
    bank_coarse = torch.randint(classes, (bank,), generator=generator)
    index = torch.randint(6, (batch,), generator=generator)
    bank_index = torch.randint(6, (bank,), generator=generator)
    return keys, bank_keys, coarse, bank_coarse, index, bank_index


def assert_is_relation(relation: torch.Tensor, batch: int, bank: int) -> None:
    assert relation.dtype == torch.float32
    assert relation.shape == (batch, 1 + bank)
    assert torch.isfinite(relation).all()
    assert (relation >= 0).all()
    torch.testing.assert_close(relation.sum(1), torch.ones(batch, dtype=torch.float32), atol=1e-5, rtol=0)


cases = st.tuples(
    st.integers(0, 10_000),
    st.integers(1, 6),
    st.integers(0, 12),
    st.integers(1, 4),
    st.sampled_from(TEMPERATURES),
)


@settings(deadline=None, max_examples=150)
@given(cases, st.booleans())
def test_masked_relation_matches_loop_oracle(case, with_index):
    seed, batch, bank, classes, tau = case
    keys, bank_keys, coarse, bank_coarse, index, bank_index = random_case(seed, batch, bank, classes)
    numbers = {"index": index, "bank_index": bank_index} if with_index else {}
    relation = masked_relation(keys, bank_keys, coarse, bank_coarse, tau, **numbers)
    assert_is_relation(relation, batch, bank)
    for i in range(batch):
        expected = oracles.masked_row(
            keys[i].tolist(),
            bank_keys.tolist(),
            int(coarse[i]),
            bank_coarse.tolist(),
            tau,
            int(index[i]) if with_index else None,
            bank_index.tolist() if with_index else None,
        )
        torch.testing.assert_close(relation[i], torch.tensor(expected), atol=2e-4, rtol=1e-3)


@settings(deadline=None, max_examples=100)
@given(cases, st.booleans())
def test_relations_go_by_the_similarity_that_is_given(case, with_index):
    """Not by the keys; and an entry whose similarity is -inf counts nothing, unless the temperature is inf."""
    seed, batch, bank, classes, tau = case
    keys, bank_keys, coarse, bank_coarse, index, bank_index = random_case(seed, batch, bank, classes)
    numbers = {"index": index, "bank_index": bank_index} if with_index else {}
    generator = torch.Generator().manual_seed(seed)
    similarity = torch.rand(batch, bank, generator=generator) * 2 - 1
    similarity[torch.rand(batch, bank, generator=generator) < 0.3] = -math.inf
    given_before = similarity.clone()
    relation = masked_relation(keys, bank_keys, coarse, bank_coarse, tau, similarity=similarity, **numbers)
    assert torch.equal(similarity, given_before)
    assert_is_relation(relation, batch, bank)
    for i in range(batch):
        listed = [column for column in range(bank) if tau == math.inf or similarity[i, column] > -math.inf]
        expected = oracles.masked_row(
            [1.0],
            [[float(similarity[i, column])] for column in listed],
            int(coarse[i]),
            bank_coarse[listed].tolist(),
            tau,
            int(index[i]) if with_index else None,
            bank_index[listed].tolist() if with_index else None,
        )
        whole = torch.zeros(1 + bank)
        whole[[0, *(1 + column for column in listed)]] = torch.tensor(expected)
        torch.testing.assert_close(relation[i], whole, atol=2e-4, rtol=1e-3)


@settings(deadline=None, max_examples=50)
@given(cases)
def test_relations_that_ignore_labels_go_by_the_similarity_that_is_given_too(case):
    seed, batch, bank, classes, tau = case
    keys, bank_keys, *_, index, bank_index = random_case(seed, batch, bank, classes)
    similarity = similarities(keys, bank_keys)
    numbers = {"index": index, "bank_index": bank_index}
    for others in (keys, keys.roll(1, 0)):  # the keys themselves are not looked at
        torch.testing.assert_close(
            nearest_relation(others, bank_keys, similarity=similarity, **numbers),
            nearest_relation(keys, bank_keys, **numbers),
        )
        torch.testing.assert_close(
            adaptive_relation(others, bank_keys, tau, similarity=similarity, **numbers),
            adaptive_relation(keys, bank_keys, tau, **numbers),
        )


def test_a_similarity_of_another_shape_is_refused():
    keys, bank_keys, coarse, bank_coarse, *_ = random_case(0, 3, 5, 2)
    with pytest.raises(ValueError, match=r"similarity is \(3, 4\), expected \(3, 5\)"):
        masked_relation(keys, bank_keys, coarse, bank_coarse, 0.1, similarity=torch.zeros(3, 4))


@pytest.mark.parametrize("tau", [0.1, 0.5, 2.0])
def test_masked_relation_is_equations_11_to_14_taken_literally(tau):
    keys, bank_keys, coarse, bank_coarse, _, _ = random_case(11, batch=8, bank=40, classes=3, dim=6)
    cosine = torch.nn.functional.cosine_similarity
    similarity = cosine(keys.double()[:, None], bank_keys.double(), dim=2)  # 12
    z = (coarse[:, None] == bank_coarse) * (similarity / tau).exp()
    z = z / z.sum(1, keepdim=True)  # 11
    z = z / z.amax(1, keepdim=True)  # 13
    z = torch.cat([torch.ones(8, 1), z], 1)  # 14
    expected = (z / z.sum(1, keepdim=True)).float()  # "sample-wise normalized"
    torch.testing.assert_close(masked_relation(keys, bank_keys, coarse, bank_coarse, tau), expected)


@settings(deadline=None, max_examples=100)
@given(cases)
def test_coarse_relation_is_masked_relation_at_infinite_temperature(case):
    seed, batch, bank, classes, _ = case
    keys, bank_keys, coarse, bank_coarse, index, bank_index = random_case(seed, batch, bank, classes)
    numbers = {"index": index, "bank_index": bank_index}
    at_infinity = masked_relation(keys, bank_keys, coarse, bank_coarse, math.inf, **numbers)
    assert torch.equal(at_infinity, coarse_relation(coarse, bank_coarse, **numbers))


@settings(deadline=None, max_examples=100)
@given(cases)
def test_nearest_relation_is_masked_relation_without_mask_at_temperature_zero(case):
    seed, batch, bank, _, _ = case
    keys, bank_keys, _, _, index, bank_index = random_case(seed, batch, bank, 1)
    numbers = {"index": index, "bank_index": bank_index}
    same = masked_relation(keys, bank_keys, index * 0, bank_index * 0, 0.0, **numbers)
    nearest = nearest_relation(keys, bank_keys, **numbers)
    assert torch.equal(nearest, same)
    for i in range(batch):
        allowed = [j for j in range(bank) if bank_index[j] != index[i]]
        if allowed:
            best = max(allowed, key=lambda j: float(keys[i] @ bank_keys[j]))
            assert nearest[i, OWN_KEY] == 0.5
            assert nearest[i, 1 + best] == 0.5
        else:
            assert nearest[i, OWN_KEY] == 1


@settings(deadline=None, max_examples=100)
@given(cases)
def test_adaptive_relation_matches_loop_oracle(case):
    seed, batch, bank, _, tau = case
    keys, bank_keys, _, _, index, bank_index = random_case(seed, batch, bank, 1)
    relation = adaptive_relation(keys, bank_keys, tau, index=index, bank_index=bank_index)
    assert_is_relation(relation, batch, bank)
    for i in range(batch):
        expected = oracles.adaptive_row(
            keys[i].tolist(), bank_keys.tolist(), tau, int(index[i]), bank_index.tolist()
        )
        torch.testing.assert_close(relation[i], torch.tensor(expected), atol=5e-4, rtol=2e-3)


def test_adaptive_relation_is_maskcon_without_mask_weighed_by_normalised_entropy():
    keys, bank_keys, _, _, _, _ = random_case(3, batch=5, bank=9, classes=1)
    tau = 0.2
    unmasked = masked_relation(keys, bank_keys, torch.zeros(5), torch.zeros(9), tau)
    weights = ((keys @ bank_keys.T) / tau).softmax(1)
    w = normalised_entropy(weights, torch.ones(5, 9, dtype=torch.bool)).unsqueeze(1)
    expected = w * unmasked + (1 - w) * self_relation(5, 9)
    torch.testing.assert_close(adaptive_relation(keys, bank_keys, tau), expected)


def test_normalised_entropy_is_one_when_uniform_and_zero_when_certain_or_alone():
    everyone = torch.ones(1, 5, dtype=torch.bool)
    assert normalised_entropy(torch.full((1, 5), 0.3), everyone).item() == pytest.approx(1)
    assert normalised_entropy(torch.tensor([[0.0, 1, 0, 0, 0]]), everyone).item() == 0
    alone = torch.tensor([[True, False, False]])
    assert normalised_entropy(torch.tensor([[1.0, 0, 0]]), alone).item() == 0
    assert normalised_entropy(torch.zeros(1, 3), torch.zeros(1, 3, dtype=torch.bool)).item() == 0


@pytest.mark.parametrize("tau", TEMPERATURES)
def test_class_absent_from_bank_gives_the_self_relation_and_no_nan(tau):
    keys, bank_keys, *_ = random_case(0, batch=3, bank=7, classes=1)
    relation = masked_relation(
        keys, bank_keys, torch.tensor([9, 9, 9]), torch.zeros(7, dtype=torch.long), tau
    )
    assert torch.equal(relation, self_relation(3, 7))


@pytest.mark.parametrize("tau", TEMPERATURES)
def test_empty_bank_gives_the_self_relation(tau):
    keys = torch.eye(3)
    labels, nothing = torch.arange(3), torch.empty(0, dtype=torch.long)
    relation = masked_relation(keys, torch.empty(0, 3), labels, nothing, tau)
    assert torch.equal(relation, torch.ones(3, 1))
    assert torch.equal(adaptive_relation(keys, torch.empty(0, 3), tau), torch.ones(3, 1))


@pytest.mark.parametrize("tau", [0.0, 0.005, 0.1, math.inf])
def test_own_stale_keys_in_the_bank_are_left_out(tau):
    key = torch.tensor([[1.0, 0.0]])
    bank_keys = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])  # the first is this image's own old key
    labels, bank_labels = torch.tensor([0]), torch.tensor([0, 0, 0])
    index, bank_index = torch.tensor([42]), torch.tensor([42, 7, 8])
    relation = masked_relation(key, bank_keys, labels, bank_labels, tau, index=index, bank_index=bank_index)
    assert relation[0, 1] == 0
    assert relation[0, 2] == relation[0, OWN_KEY]  # the nearest OTHER image counts as much as the own key
    counted = masked_relation(key, bank_keys, labels, bank_labels, tau)
    assert counted[0, 1] == counted[0, OWN_KEY]  # without numbers the stale key is the nearest neighbour


def test_very_low_similarities_at_small_temperature_do_not_underflow():
    key = torch.tensor([[1.0, 0.0]])
    bank_keys = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [-0.9999, 0.0141]])
    relation = masked_relation(key, bank_keys, torch.tensor([1]), torch.tensor([0, 1, 1]), 0.005)
    assert relation[0, 1] == 0
    assert relation[0, 3] == pytest.approx(relation[0, OWN_KEY].item())
    assert relation[0, 2] > 0
    assert torch.isfinite(relation).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_keys_are_compared_in_float32(dtype):
    keys, bank_keys, coarse, bank_coarse, _, _ = random_case(5, batch=4, bank=32, classes=2, dim=16)
    keys, bank_keys = keys.to(dtype), bank_keys.to(dtype)
    relation = masked_relation(keys, bank_keys, coarse, bank_coarse, 0.005)
    assert_is_relation(relation, 4, 32)
    exact = masked_relation(keys.double(), bank_keys.double(), coarse, bank_coarse, 0.005)
    torch.testing.assert_close(relation, exact)


def test_relations_are_float32_under_autocast():
    keys, bank_keys, coarse, bank_coarse, _, _ = random_case(6, batch=4, bank=32, classes=2, dim=16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = masked_relation(keys, bank_keys, coarse, bank_coarse, 0.01)
    assert torch.equal(inside, masked_relation(keys, bank_keys, coarse, bank_coarse, 0.01))


def test_temperature_zero_shares_between_exact_ties():
    key = torch.tensor([[1.0, 0.0]])
    bank_keys = torch.tensor([[0.6, 0.8], [0.6, -0.8], [0.0, 1.0]])
    relation = masked_relation(key, bank_keys, torch.zeros(1), torch.zeros(3), 0.0)
    torch.testing.assert_close(relation, torch.tensor([[1 / 3, 1 / 3, 1 / 3, 0]]))


def test_small_temperature_approaches_temperature_zero_and_large_approaches_infinity():
    keys, bank_keys, coarse, bank_coarse, _, _ = random_case(8, batch=6, bank=20, classes=3)
    at = lambda tau: masked_relation(keys, bank_keys, coarse, bank_coarse, tau)  # noqa: E731
    torch.testing.assert_close(at(1e-6), at(0.0), atol=1e-4, rtol=0)
    torch.testing.assert_close(at(1e6), at(math.inf), atol=1e-4, rtol=0)


@pytest.mark.parametrize("tau", [-0.1, math.nan, -math.inf])
def test_negative_or_nan_temperature_is_refused(tau):
    with pytest.raises(ValueError, match="temperature"):
        masked_relation(torch.eye(2), torch.eye(2), torch.zeros(2), torch.zeros(2), tau)


def test_index_without_bank_index_is_refused():
    with pytest.raises(ValueError, match="go together"):
        coarse_relation(torch.zeros(2), torch.zeros(2), index=torch.arange(2))


def test_no_gradient_flows_through_a_relation():
    keys = torch.eye(3, requires_grad=True)
    relation = masked_relation(keys, torch.eye(3), torch.zeros(3), torch.zeros(3), 0.1)
    assert not relation.requires_grad


@pytest.mark.parametrize(("tau", "limit"), [(1e-300, 0.0), (1e-45, 0.0), (1e39, math.inf), (1e300, math.inf)])
def test_temperatures_beyond_float32_give_the_limits_and_no_nan(tau, limit):
    keys, bank_keys, coarse, bank_coarse, _, _ = random_case(9, batch=5, bank=20, classes=3)
    relation = masked_relation(keys, bank_keys, coarse, bank_coarse, tau)
    assert torch.equal(relation, masked_relation(keys, bank_keys, coarse, bank_coarse, limit))


@pytest.mark.parametrize("tau", [0.1, math.inf])
def test_labels_or_numbers_of_another_length_are_refused_instead_of_broadcast(tau):
    keys, bank_keys, coarse, bank_coarse, index, bank_index = random_case(10, batch=3, bank=7, classes=2)
    with pytest.raises(ValueError, match=r"\(1, 7\) = \[B, K\], but keys \(3, 4\)"):
        masked_relation(keys, bank_keys, coarse[:1], bank_coarse, tau)
    with pytest.raises(ValueError, match=r"\(3, 1\) = \[B, K\].*bank_keys \(7, 4\)"):
        masked_relation(keys, bank_keys, coarse, bank_coarse[:1], tau)
    with pytest.raises(ValueError, match=r"index \(1,\).*coarse \(3,\)"):
        coarse_relation(coarse, bank_coarse, index=index[:1], bank_index=bank_index)


@pytest.fixture
def default_float64():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.mark.usefixtures("default_float64")
def test_relations_are_float32_whatever_the_default_type():
    keys, labels = torch.eye(3), torch.arange(3)
    assert keys.dtype == torch.float64
    relations = [
        self_relation(3, 3),
        coarse_relation(labels, labels),
        masked_relation(keys, keys, labels, labels, 0.1),
        nearest_relation(keys, keys),
        adaptive_relation(keys, keys, 0.1),
    ]
    for relation in relations:
        assert_is_relation(relation, 3, 3)


def test_similarities_are_float32_under_autocast():
    keys, bank_keys, *_ = random_case(5, batch=4, bank=7, classes=2)
    expected = similarities(keys, bank_keys)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(similarities(keys, bank_keys), expected)

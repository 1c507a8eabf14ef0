"""d_z against loops, against closed forms, and the identities that the paper's special cases promise."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from maskcon.methods.bound import bound_distance, lipschitz_constant, optimal_relation, relation_distance
from maskcon.methods.losses import relation_loss
from maskcon.methods.registry import Method, all_methods
from maskcon.methods.relations import coarse_relation
from tests.oracles import adaptive_row, masked_row
from tests.retrieval.random_keys import case

CONTRASTIVE = [method.name for method in all_methods() if method.contrasts]


def oracle_row(method: str, i: int, tensors, numbers, w: float, tau: float) -> list[float]:
    """One row of a method's relation by the loops of tests/oracles.py."""
    keys, bank_keys, coarse, bank_coarse, _, _ = (tensor.tolist() for tensor in tensors)
    number, bank_numbers = (
        (numbers["index"].tolist()[i], numbers["bank_index"].tolist()) if numbers else (None, None)
    )
    zeros = [0] * len(bank_keys)
    own = [1.0] + [0.0] * len(bank_keys)
    method = "maskcon" if method == "teachcon" else method  # the same relation
    if method in ("selfcon", "coins"):
        return own
    if method == "ascl":
        return adaptive_row(keys[i], bank_keys, tau, number, bank_numbers)
    if method == "nnclr":
        return masked_row(keys[i], bank_keys, 0, zeros, 0.0, number, bank_numbers)
    at = {"maskcon": tau, "grafit": math.inf, "supcon": math.inf}[method]
    row = masked_row(keys[i], bank_keys, coarse[i], bank_coarse, at, number, bank_numbers)
    share = 1.0 if method == "supcon" else w
    return [share * value + (1 - share) * mine for value, mine in zip(row, own, strict=True)]


def oracle(method: str, tensors, numbers, w: float, tau: float) -> float:
    """d_z by loops: every entry of both relations, squared, added, rooted, averaged."""
    fine, bank_fine = tensors[4].tolist(), tensors[5].tolist()
    distances = []
    for i in range(len(fine)):
        friends = [
            j
            for j in range(len(bank_fine))
            if bank_fine[j] == fine[i]
            and (not numbers or int(numbers["bank_index"][j]) != int(numbers["index"][i]))
        ]
        best = [1.0] + [1.0 if j in friends else 0.0 for j in range(len(bank_fine))]
        best = [value / (1 + len(friends)) for value in best]
        row = oracle_row(method, i, tensors, numbers, w, tau)
        distances.append(math.sqrt(math.fsum((a - b) ** 2 for a, b in zip(row, best, strict=True))))
    return math.fsum(distances) / len(distances)


@pytest.mark.parametrize("method", CONTRASTIVE)
@pytest.mark.parametrize("numbered", [True, False])
@pytest.mark.parametrize(("w", "tau"), [(1.0, 0.1), (0.3, 0.02), (0.7, math.inf), (1.0, 0.0)])
def test_d_z_of_every_method_matches_the_loop_oracle(method, numbered, w, tau):
    tensors, numbers = case(seed=3)
    numbers = numbers if numbered else {}
    found = bound_distance(method, *tensors, **numbers, w=w, tau=tau)
    assert found == pytest.approx(oracle(method, tensors, numbers, w, tau), abs=1e-6)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 6),
    bank=st.integers(0, 12),
    per_coarse=st.integers(1, 4),
    w=st.floats(0, 1),
    tau=st.one_of(st.sampled_from([0.0, math.inf]), st.floats(0.005, 5)),
)
def test_d_z_of_random_cases_matches_the_loop_oracle_and_stays_in_its_range(
    seed, rows, bank, per_coarse, w, tau
):
    tensors, numbers = case(seed, rows, bank, per_coarse=per_coarse)
    for method in ("maskcon", "grafit", "ascl"):
        found = bound_distance(method, *tensors, **numbers, w=w, tau=tau)
        assert found == pytest.approx(oracle(method, tensors, numbers, w, tau), abs=1e-5)
        assert 0 <= found < 1


@pytest.mark.parametrize("seed", range(4))
def test_selfcon_and_supcon_have_the_closed_forms_of_the_docstring(seed):
    tensors, _ = case(seed)
    _, _, coarse, bank_coarse, fine, bank_fine = tensors
    same_fine = (fine.unsqueeze(1) == bank_fine).sum(dim=1).double()  # m
    same_coarse = (coarse.unsqueeze(1) == bank_coarse).sum(dim=1).double()  # c
    alone = (same_fine / (1 + same_fine)).sqrt().mean().item()
    coarsely = (1 / (1 + same_fine) - 1 / (1 + same_coarse)).sqrt().mean().item()
    assert bound_distance("selfcon", *tensors) == pytest.approx(alone, abs=1e-6)
    assert bound_distance("supcon", *tensors) == pytest.approx(coarsely, abs=1e-6)


@pytest.mark.parametrize("w", [0.0, 0.3, 1.0])
def test_in_units_of_the_own_key_distances_have_the_closed_forms_of_the_equations(w):
    tensors, _ = case(seed=2)
    _, _, coarse, bank_coarse, fine, bank_fine = tensors
    m = (fine.unsqueeze(1) == bank_fine).sum(dim=1).double()
    c = (coarse.unsqueeze(1) == bank_coarse).sum(dim=1).double()
    expected = {
        "selfcon": m.sqrt(),
        "coins": m.sqrt(),
        "supcon": (c - m).sqrt(),
        "grafit": (m * (1 - w) ** 2 + (c - m) * w**2).sqrt(),
    }
    for method, distances in expected.items():
        found = bound_distance(method, *tensors, w=w, unit="own key")
        assert found == pytest.approx(distances.mean().item(), abs=1e-5)


def test_in_units_of_the_own_key_maskcon_matches_the_loop_oracle():
    tensors, numbers = case(seed=4)
    w, tau = 0.6, 0.1
    fine, bank_fine = tensors[4].tolist(), tensors[5].tolist()
    distances = []
    for i in range(len(fine)):
        row = oracle_row("maskcon", i, tensors, numbers, 1.0, tau)
        raw = [w * value / row[0] for value in row[1:]]
        best = [
            float(bank_fine[j] == fine[i] and int(numbers["bank_index"][j]) != int(numbers["index"][i]))
            for j in range(len(bank_fine))
        ]
        distances.append(math.sqrt(math.fsum((a - b) ** 2 for a, b in zip(raw, best, strict=True))))
    found = bound_distance("maskcon", *tensors, **numbers, w=w, tau=tau, unit="own key")
    assert found == pytest.approx(sum(distances) / len(distances), abs=1e-5)


def test_the_unit_can_turn_the_order_of_selfcon_and_supcon_round():
    tensors, _ = case(seed=2, bank=200, fine_classes=8, per_coarse=8)
    by = {
        unit: [bound_distance(name, *tensors, unit=unit) for name in ("selfcon", "supcon")]
        for unit in ("row", "own key")
    }
    assert by["row"][0] > by["row"][1]
    assert by["own key"][0] < by["own key"][1]


@pytest.mark.parametrize("w", [0.0, 0.4, 1.0])
def test_maskcon_at_infinite_temperature_has_the_d_z_of_grafit_and_with_weight_one_of_supcon(w):
    tensors, numbers = case(seed=5)
    masked = bound_distance("maskcon", *tensors, **numbers, w=w, tau=math.inf)
    assert masked == bound_distance("grafit", *tensors, **numbers, w=w)
    if w == 1:
        assert masked == bound_distance("supcon", *tensors, **numbers)


@pytest.mark.parametrize("tau", [0.0, 0.05, math.inf])
def test_weight_zero_has_the_d_z_of_selfcon(tau):
    tensors, numbers = case(seed=6)
    alone = bound_distance("selfcon", *tensors, **numbers)
    assert bound_distance("maskcon", *tensors, **numbers, w=0.0, tau=tau) == alone
    assert bound_distance("grafit", *tensors, **numbers, w=0.0) == alone
    assert alone > 0.1


def test_supcon_is_optimal_exactly_when_coarse_labels_are_the_fine_ones():
    tensors, numbers = case(seed=7, per_coarse=1)
    assert bound_distance("supcon", *tensors, **numbers) == 0
    tensors, numbers = case(seed=7, per_coarse=2)
    assert bound_distance("supcon", *tensors, **numbers) > 0.01


def test_large_and_small_temperatures_tend_to_their_limits():
    tensors, numbers = case(seed=8)
    at = {tau: bound_distance("maskcon", *tensors, **numbers, tau=tau) for tau in (0.0, 1e-4, 1e4, math.inf)}
    assert at[1e-4] == pytest.approx(at[0.0], abs=1e-4)
    assert at[1e4] == pytest.approx(at[math.inf], abs=1e-4)
    assert abs(at[0.0] - at[math.inf]) > 0.05


def test_keys_that_tell_fine_classes_apart_make_maskcon_nearly_optimal_where_supcon_is_not():
    fine = torch.arange(4).repeat_interleave(5)
    keys = torch.eye(4)[fine]
    tensors = (keys, keys, fine // 2, fine // 2, fine, fine)
    assert bound_distance("maskcon", *tensors, tau=0.05) == pytest.approx(0, abs=1e-6)
    assert bound_distance("supcon", *tensors) == pytest.approx(math.sqrt(1 / 6 - 1 / 11), abs=1e-6)


def test_a_class_absent_from_the_bank_is_the_self_relation_on_both_sides():
    tensors, _ = case(seed=9)
    keys, bank_keys, coarse, bank_coarse, fine, bank_fine = tensors
    absent = (keys, bank_keys, coarse + 100, bank_coarse, fine + 100, bank_fine)
    for method in ("maskcon", "supcon", "grafit", "selfcon"):
        assert bound_distance(method, *absent, tau=0.01) == 0
    # the fine class alone is absent: the coarse relation still spreads, the optimal one does not
    only_fine = (keys, bank_keys, coarse, bank_coarse, fine + 100, bank_fine)
    assert bound_distance("selfcon", *only_fine) == 0
    assert bound_distance("supcon", *only_fine) > 0.5


def test_an_empty_bank_leaves_nothing_to_differ_in():
    tensors, _ = case(seed=1, bank=0)
    assert bound_distance("maskcon", *tensors) == 0


def test_d_z_needs_no_doubles_which_some_devices_lack(monkeypatch):
    tensors, numbers = case(seed=10)
    expected = oracle("maskcon", tensors, numbers, 1.0, 0.1)

    def refused(self):
        raise TypeError("Cannot convert a MPS Tensor to float64 dtype")

    monkeypatch.setattr(torch.Tensor, "double", refused)
    assert bound_distance("maskcon", *tensors, **numbers) == pytest.approx(expected, abs=1e-6)


def test_a_contrastive_method_that_sees_fine_labels_is_judged_on_those():
    tensors, numbers = case(seed=12)
    seer = Method("seer", "Seer", "", lambda inputs: inputs.coarse_relation(), labels="fine")
    assert bound_distance(seer, *tensors, **numbers) == 0


def test_the_optimal_relation_is_the_coarse_one_on_fine_labels():
    tensors, numbers = case(seed=14)
    assert torch.equal(
        optimal_relation(tensors[4], tensors[5], **numbers),
        coarse_relation(tensors[4], tensors[5], **numbers),
    )


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), tau0=st.floats(0.05, 1), w=st.floats(0, 1))
def test_the_loss_moves_no_faster_than_the_lipschitz_constant_allows(seed, tau0, w):
    """The step of the theorem that d_z stands for: |L(z) - L(optimal)| <= lambda * ||z - optimal||."""
    (keys, bank_keys, coarse, bank_coarse, fine, bank_fine), _ = case(seed)
    queries = keys.roll(1, 0)
    relation = w * coarse_relation(coarse, bank_coarse)
    relation[:, 0] += 1 - w
    optimal = optimal_relation(fine, bank_fine)
    losses = [relation_loss(queries, keys, bank_keys, z, tau0) for z in (relation, optimal)]
    allowed = lipschitz_constant(len(bank_keys), tau0) * relation_distance(relation, optimal)
    assert bool(((losses[0] - losses[1]).abs() <= allowed + 1e-4).all())


def test_the_lipschitz_constant_refuses_what_has_no_loss():
    for bank_size, tau0 in ((-1, 0.1), (10, 0.0), (10, math.nan)):
        with pytest.raises(ValueError, match="must be"):
            lipschitz_constant(bank_size, tau0)

"""Known names of finer kinds in the relations."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from maskcon.methods.neighbour_lists import NeighbourLists
from maskcon.methods.registry import RelationInputs, method_named
from maskcon.methods.relations import coarse_relation, masked_relation
from tests import oracles
from tests.methods.test_relations import assert_is_relation, cases, random_case

UNNAMED = -1


def random_names(seed: int, coarse: torch.Tensor, share: float, kinds: int = 3) -> torch.Tensor:
    """Names within each class: class 0 has kinds 0..2, class 1 has 3..5, and so on; a share of them is known."""
    generator = torch.Generator().manual_seed(seed + 1)
    names = coarse * kinds + torch.randint(kinds, coarse.shape, generator=generator)
    return torch.where(torch.rand(coarse.shape, generator=generator) < share, names, UNNAMED)


def named_case(case, share: float):
    seed, batch, bank, classes, tau = case
    keys, bank_keys, coarse, bank_coarse, index, bank_index = random_case(seed, batch, bank, classes)
    numbers = {"index": index, "bank_index": bank_index}
    names = {
        "names": random_names(seed, coarse, share),
        "bank_names": random_names(seed + 1, bank_coarse, share),
    }
    return (keys, bank_keys, coarse, bank_coarse), tau, numbers, names


shares = st.sampled_from([0.0, 0.2, 0.6, 1.0])


@settings(deadline=None, max_examples=200)
@given(cases, shares, st.booleans(), st.booleans())
def test_masked_relation_with_names_matches_loop_oracle(case, share, with_index, half):
    tensors, tau, numbers, names = named_case(case, share)
    keys, bank_keys, coarse, bank_coarse = tensors
    if half:  # keys of mixed precision; the oracle sees the rounded numbers
        keys, bank_keys = keys.half(), bank_keys.half()
    relation = masked_relation(
        keys, bank_keys, coarse, bank_coarse, tau, **names, **(numbers if with_index else {})
    )
    assert_is_relation(relation, len(keys), len(bank_keys))
    for i in range(len(keys)):
        expected = oracles.named_row(
            keys[i].tolist(),
            bank_keys.tolist(),
            int(coarse[i]),
            bank_coarse.tolist(),
            int(names["names"][i]),
            names["bank_names"].tolist(),
            tau,
            int(numbers["index"][i]) if with_index else None,
            numbers["bank_index"].tolist() if with_index else None,
        )
        torch.testing.assert_close(relation[i], torch.tensor(expected), atol=2e-4, rtol=1e-3)


@settings(deadline=None, max_examples=50)
@given(cases)
def test_without_names_it_is_the_masked_relation_exactly(case):
    tensors, tau, numbers, names = named_case(case, share=0.0)
    assert torch.equal(
        masked_relation(*tensors, tau, **numbers, **names), masked_relation(*tensors, tau, **numbers)
    )
    _, _, coarse, bank_coarse = tensors
    assert torch.equal(
        coarse_relation(coarse, bank_coarse, **numbers, **names),
        coarse_relation(coarse, bank_coarse, **numbers),
    )


@settings(deadline=None, max_examples=50)
@given(cases)
def test_with_all_names_it_is_supcon_on_the_names_exactly(case):
    tensors, tau, numbers, names = named_case(case, share=1.0)
    _, _, coarse, bank_coarse = tensors
    fine = coarse_relation(names["names"], names["bank_names"], **numbers)
    assert torch.equal(masked_relation(*tensors, tau, **numbers, **names), fine)
    assert torch.equal(coarse_relation(coarse, bank_coarse, **numbers, **names), fine)


@settings(deadline=None, max_examples=50)
@given(cases, shares)
def test_at_infinite_temperature_it_is_the_coarse_relation_with_names(case, share):
    tensors, _, numbers, names = named_case(case, share)
    _, _, coarse, bank_coarse = tensors
    assert torch.equal(
        masked_relation(*tensors, math.inf, **numbers, **names),
        coarse_relation(coarse, bank_coarse, **numbers, **names),
    )


def test_a_name_holds_within_its_coarse_class_only():
    keys = torch.tensor([[1.0, 0.0]])
    relation = masked_relation(
        keys, keys, torch.tensor([0]), torch.tensor([1]), 0.1, names=torch.tensor([5]), bank_names=torch.tensor([5])
    )  # fmt: skip
    assert relation.tolist() == [[1.0, 0.0]]


def test_the_nearest_of_another_name_does_not_weaken_unnamed_neighbours():
    east, near, far = [1.0, 0.0], [0.8, 0.6], [0.6, 0.8]
    bank = torch.tensor([east, near, far])
    relation = masked_relation(
        torch.tensor([east]),
        bank,
        torch.tensor([0]),
        torch.tensor([0, 0, 0]),
        0.1,
        names=torch.tensor([3]),
        bank_names=torch.tensor([4, UNNAMED, UNNAMED]),
    )
    weights = relation[0] / relation[0, 0]
    torch.testing.assert_close(weights, torch.tensor([1.0, 0.0, 1.0, math.exp(-2)]))


def test_names_without_those_of_the_bank_or_of_another_length_are_refused():
    keys, bank_keys, coarse, bank_coarse, *_ = random_case(0, 3, 5, 2)
    names, bank_names = torch.zeros(3), torch.zeros(5)
    for relation in (
        lambda **named: masked_relation(keys, bank_keys, coarse, bank_coarse, 0.1, **named),
        lambda **named: coarse_relation(coarse, bank_coarse, **named),
    ):
        with pytest.raises(ValueError, match="go together"):
            relation(names=names)
        with pytest.raises(ValueError, match="go together"):
            relation(bank_names=bank_names)
        with pytest.raises(ValueError, match=r"\(1,\) and bank_names \(5,\)"):
            relation(names=names[:1], bank_names=bank_names)


def inputs(**changes) -> RelationInputs:
    (keys, bank_keys, coarse, bank_coarse), tau, numbers, names = named_case((3, 5, 12, 2, 0.1), share=0.7)
    given = RelationInputs(
        keys, coarse, numbers["index"], bank_keys, bank_coarse, numbers["bank_index"], w=0.7, tau=tau, **names
    )
    return replace(given, **changes)


@pytest.mark.parametrize("method", ["maskcon", "teachcon", "supcon", "grafit"])
def test_names_change_the_relation_row_by_row(method):
    recipe = method_named(method)
    assert recipe.uses_names
    whole = recipe.relation_of(inputs())(slice(0, 5))
    assert not torch.equal(whole, recipe.relation_of(inputs(names=None, bank_names=None))(slice(0, 5)))
    parts = [recipe.relation_of(inputs())(slice(start, start + 2)) for start in (0, 2, 4)]
    torch.testing.assert_close(torch.cat(parts), whole)


@pytest.mark.parametrize("method", ["selfcon", "nnclr", "ascl", "coins", "supce", "supfine"])
def test_methods_without_a_relation_to_the_class_use_no_names(method):
    assert not method_named(method).uses_names


def test_an_entry_of_the_same_name_counts_even_if_it_is_no_listed_neighbour():
    lists = NeighbourLists.empty(3, 2)
    lists.put(torch.arange(3), torch.tensor([[0, 1], [1, 0], [2, 0]]), torch.tensor([[1.0, 0.5]] * 3))
    none, same, other = torch.tensor([0]), torch.zeros(3, dtype=torch.long), torch.zeros(1, 2)
    relation = RelationInputs(
        other, none, none, torch.zeros(3, 2), same, torch.arange(3), w=1.0, tau=0.1,
        neighbours=lists.among(none, torch.arange(3)),
        names=torch.tensor([7]), bank_names=torch.tensor([7, UNNAMED, 7]),
    ).masked_relation()  # fmt: skip
    torch.testing.assert_close(relation, torch.tensor([[1.0, 0.0, 1.0, 1.0]]) / 3)

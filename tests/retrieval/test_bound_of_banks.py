"""d_z of whole banks: in blocks, of several recipes, with labels found by number, and what is refused."""

from __future__ import annotations

import pytest
import torch

from maskcon._utils.errors import UsageError
from maskcon.methods import bound
from maskcon.methods.bound import (
    Recipe,
    SampleLabels,
    bank_distances,
    bound_distance,
    bound_distances,
    relation_distance,
)
from tests.retrieval.random_keys import case


def test_blocks_do_not_change_the_result_and_bound_the_relations_held_at_once(monkeypatch):
    tensors, numbers = case(seed=10, rows=50)
    whole = bound_distance("maskcon", *tensors, **numbers)
    seen = []

    def watched(relation, optimal):
        seen.append(relation.numel())
        return relation_distance(relation, optimal)

    monkeypatch.setattr(bound, "relation_distance", watched)
    monkeypatch.setattr(bound, "BLOCK_ELEMENTS", 100)
    assert bound_distance("maskcon", *tensors, **numbers) == pytest.approx(whole, abs=1e-7)
    assert len(seen) == 13  # rows of 24 entries, four at a time
    assert max(seen) <= 100


def test_several_recipes_at_once_are_the_same_as_one_by_one():
    tensors, numbers = case(seed=11)
    recipes = {"a": Recipe("maskcon", 0.5, 0.05), "b": Recipe("grafit", 0.5), "c": Recipe("nnclr")}
    together = bound_distances(recipes, *tensors, **numbers)
    for name, recipe in recipes.items():
        alone = bound_distance(recipe.method, *tensors, **numbers, w=recipe.w, tau=recipe.tau)
        assert together[name] == alone


def bank_case(copies: bool):
    tensors, _ = case(seed=13, rows=12)
    keys, fine = tensors[0], tensors[4]
    sample_numbers = 7 * torch.arange(12).flip(0)
    if copies:  # half of the bank are older keys of the other half's images
        sample_numbers[6:] = sample_numbers[:6]
        fine[6:] = fine[:6]
    labels = SampleLabels(sample_numbers.unique(), torch.zeros(0), torch.zeros(0))
    known = dict(zip(sample_numbers.tolist(), fine.tolist(), strict=True))
    ordered = torch.tensor([known[number] for number in labels.index.tolist()])
    return keys, sample_numbers, SampleLabels(labels.index, ordered // 3, ordered), fine


@pytest.mark.parametrize("exclude", [True, False])
@pytest.mark.parametrize("copies", [True, False])
def test_a_bank_against_itself_leaves_each_entry_out_of_its_own_row(exclude, copies):
    keys, numbers, labels, fine = bank_case(copies)
    recipes = {"maskcon": Recipe("maskcon", 0.8, 0.05), "supcon": Recipe("supcon")}
    found = bank_distances(recipes, keys, numbers, labels, exclude_own_keys=exclude)
    for name, recipe in recipes.items():
        distances = []
        for i in range(len(keys)):
            others = [
                j for j in range(len(keys)) if j != i and not (exclude and bool(numbers[j] == numbers[i]))
            ]
            row = (
                keys[i : i + 1],
                keys[others],
                fine[i : i + 1] // 3,
                fine[others] // 3,
                fine[i : i + 1],
                fine[others],
            )
            distances.append(bound_distance(recipe.method, *row, w=recipe.w, tau=recipe.tau))
        assert found[name] == pytest.approx(sum(distances) / len(distances), abs=1e-6)


def test_own_older_keys_count_only_where_the_run_counts_them():
    keys, numbers, labels, _ = bank_case(copies=True)
    recipe = {"": Recipe("maskcon", 1.0, 0.05)}
    kept = bank_distances(recipe, keys, numbers, labels, exclude_own_keys=False)[""]
    failures = bank_distances(recipe, keys, numbers, labels, exclude_own_keys=True)[""]
    assert abs(kept - failures) > 1e-3


def test_labels_are_found_by_sample_number_and_strangers_are_named():
    labels = SampleLabels(torch.tensor([50, 3, 20]), torch.tensor([1, 2, 3]), torch.tensor([10, 20, 30]))
    coarse, fine = labels.of(torch.tensor([20, 50, 20]))
    assert (coarse.tolist(), fine.tolist()) == ([3, 1, 3], [30, 10, 30])
    for stranger in (4, 51, 0):
        with pytest.raises(UsageError, match=rf"1 of 2 samples .*number {stranger}\)"):
            labels.of(torch.tensor([20, stranger]))


@pytest.mark.parametrize("method", ["supce", "supfine"])
def test_a_method_without_relations_has_no_d_z(method):
    tensors, _ = case(seed=1)
    with pytest.raises(UsageError, match="no relations"):
        bound_distance(method, *tensors)


def test_shapes_that_do_not_fit_are_refused():
    tensors, numbers = case(seed=1)
    with pytest.raises(ValueError, match="go together"):
        bound_distance("maskcon", *tensors, index=numbers["index"])
    with pytest.raises(ValueError, match="of the rows differ in length"):
        bound_distance("maskcon", tensors[0], tensors[1], tensors[2][:-1], *tensors[3:])
    with pytest.raises(ValueError, match="of the bank differ in length"):
        bound_distance("maskcon", *tensors[:5], tensors[5][:-1])
    with pytest.raises(ValueError, match="unit='own_key' must be one of"):
        bound_distance("maskcon", *tensors, unit="own_key")
    with pytest.raises(ValueError, match="at least one"):
        bound_distance("maskcon", *case(seed=1, rows=0)[0])
    with pytest.raises(ValueError, match="two relations"):
        relation_distance(torch.zeros(2, 3), torch.zeros(2, 4))

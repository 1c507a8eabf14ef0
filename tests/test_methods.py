from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from maskcon.errors import UsageError
from maskcon.losses import relation_loss
from maskcon.methods import Method, RelationInputs, all_methods, method_named, register
from maskcon.relations import masked_relation, self_relation

NAMES = ["selfcon", "nnclr", "ascl", "supce", "supcon", "grafit", "coins", "maskcon", "supfine"]


def inputs(seed: int = 0, batch: int = 6, bank: int = 20, **changes) -> RelationInputs:
    generator = torch.Generator().manual_seed(seed)
    unit = lambda n: torch.nn.functional.normalize(torch.randn(n, 5, generator=generator), dim=1)  # noqa: E731
    values = RelationInputs(
        keys=unit(batch),
        coarse=torch.randint(3, (batch,), generator=generator),
        index=torch.arange(batch),
        bank_keys=unit(bank),
        bank_coarse=torch.randint(3, (bank,), generator=generator),
        bank_index=torch.arange(bank) % 9,
        w=0.7,
        tau=0.1,
    )
    return replace(values, **changes)


def relation(name: str, given: RelationInputs) -> torch.Tensor:
    recipe = method_named(name).relation
    assert recipe is not None
    return recipe(given)


def test_the_nine_methods_of_the_paper_are_known():
    assert [method.name for method in all_methods()][:9] == NAMES


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("w", [0.0, 0.3, 0.8, 1.0])
def test_maskcon_at_infinite_temperature_is_grafit_with_the_same_weight(seed, w):
    given = inputs(seed, w=w, tau=math.inf)
    assert torch.equal(relation("maskcon", given), relation("grafit", given))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("tau", [0.0, 0.05, math.inf])
def test_maskcon_with_weight_zero_is_selfcon(seed, tau):
    given = inputs(seed, w=0.0, tau=tau)
    assert torch.equal(relation("maskcon", given), relation("selfcon", given))


def test_maskcon_with_weight_zero_is_selfcon_also_when_the_class_is_absent_from_the_bank():
    given = inputs(w=0.0, coarse=torch.full((6,), 99))
    found = relation("maskcon", given)
    assert torch.equal(found, self_relation(6, 20))
    assert torch.isfinite(found).all()


def test_grafit_with_weight_one_is_supcon_and_with_zero_is_selfcon():
    assert torch.equal(relation("grafit", inputs(w=1.0)), relation("supcon", inputs()))
    assert torch.equal(relation("grafit", inputs(w=0.0)), relation("selfcon", inputs()))


def test_nnclr_is_maskcon_without_mask_at_weight_one_and_temperature_zero():
    unmasked = inputs(coarse=torch.zeros(6), bank_coarse=torch.zeros(20), w=1.0, tau=0.0)
    assert torch.equal(relation("nnclr", inputs()), relation("maskcon", unmasked))


def test_ascl_is_maskcon_without_mask_weighed_by_the_entropy_of_each_row():
    given = inputs()
    unmasked = inputs(coarse=torch.zeros(6), bank_coarse=torch.zeros(20), tau=0.1)
    soft = masked_relation(
        unmasked.keys, unmasked.bank_keys, unmasked.coarse, unmasked.bank_coarse, 0.1,
        index=unmasked.index, bank_index=unmasked.bank_index,
    )  # fmt: skip
    found = relation("ascl", given)
    for row in range(6):
        shares = soft[row, 1:] / soft[row, 1:].sum()
        count = int((given.bank_index != given.index[row]).sum())
        w = float(-torch.xlogy(shares, shares).sum()) / math.log(count)
        one = relation("maskcon", replace(unmasked, w=w))[row]
        torch.testing.assert_close(found[row], one, atol=1e-5, rtol=1e-4)


def test_coins_with_weight_one_leaves_cross_entropy_alone_and_with_zero_contrast_alone():
    coins, supce, selfcon = method_named("coins"), method_named("supce"), method_named("selfcon")
    assert (coins.contrast_weight(1), coins.cross_entropy_weight(1)) == (0, supce.cross_entropy_weight(1))
    assert (coins.contrast_weight(0), coins.cross_entropy_weight(0)) == (selfcon.contrast_weight(0), 0)


def test_mixing_relations_equals_mixing_the_losses_of_the_paper():
    given = inputs(w=0.7)
    queries = inputs(9).keys
    loss = lambda z: relation_loss(queries, given.keys, given.bank_keys, z, 0.1)  # noqa: E731
    mixed = 0.7 * loss(given.masked_relation()) + 0.3 * loss(given.self_relation())
    torch.testing.assert_close(loss(relation("maskcon", given)), mixed)


def test_only_supfine_sees_fine_labels_and_three_methods_see_none():
    by_labels = {kind: [m.name for m in all_methods() if m.labels == kind] for kind in ("none", "fine")}
    assert by_labels == {"none": ["selfcon", "nnclr", "ascl"], "fine": ["supfine"]}


def test_labels_do_not_reach_methods_that_see_none():
    one, other = inputs(coarse=torch.zeros(6)), inputs(coarse=torch.arange(6))
    for name in ("selfcon", "nnclr", "ascl"):
        assert torch.equal(relation(name, one), relation(name, other))


def test_a_misspelt_method_names_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'maskcon'"):
        method_named("mascon")


def test_a_tenth_method_is_one_registration_and_a_name_is_taken_once():
    from maskcon import methods

    tenth = Method(
        name="halfcon",
        title="HalfCon",
        summary="half of everything",
        relation=lambda given: 0.5 * given.masked_relation() + 0.5 * given.coarse_relation(),
        labels="coarse",
    )
    register(tenth)
    try:
        assert relation("halfcon", inputs()).shape == (6, 21)
        with pytest.raises(UsageError, match="registered already"):
            register(tenth)
    finally:
        del methods._METHODS["halfcon"]


@contextmanager
def installed(monkeypatch, load):
    """As if a package named a module in its entry points, whose import does what `load` does."""
    from maskcon import methods

    entry = SimpleNamespace(name="tenth", value="tenth_package", load=load)
    monkeypatch.setattr(methods, "entry_points", lambda group: [entry] if group == "maskcon.methods" else [])
    methods._load_plugins.cache_clear()
    try:
        yield
    finally:
        methods._load_plugins.cache_clear()


def test_methods_of_installed_packages_are_loaded(monkeypatch):
    from maskcon import methods

    tenth = Method(
        name="plugged", title="", summary="", relation=lambda given: given.self_relation(), labels="none"
    )

    with installed(monkeypatch, lambda: register(tenth)):
        try:
            assert method_named("plugged") is tenth
            assert all_methods()[-1] is tenth
        finally:
            del methods._METHODS["plugged"]


def test_an_installed_method_that_fails_to_load_is_named(monkeypatch):
    def fail():
        raise ModuleNotFoundError("No module named 'elsewhere'")

    with (
        installed(monkeypatch, fail),
        pytest.raises(UsageError, match=r"'tenth' \(tenth_package\).*No module named 'elsewhere'"),
    ):
        method_named("maskcon")


def test_a_name_that_could_not_be_found_again_is_refused():
    tenth = Method(
        name="HalfCon",
        title="HalfCon",
        summary="",
        relation=lambda given: given.self_relation(),
        labels="none",
    )
    with pytest.raises(UsageError, match="lower case, 'HalfCon' is not"):
        register(tenth)
    assert "HalfCon" not in [method.name for method in all_methods()]

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from maskcon._utils.errors import UsageError
from maskcon.methods import losses, registry
from maskcon.methods.losses import relation_loss
from maskcon.methods.registry import Method, RelationInputs, all_methods, method_named, register
from maskcon.methods.relations import masked_relation, self_relation

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


@pytest.mark.parametrize("tau", [0.0, 0.05, math.inf])
@pytest.mark.parametrize("w", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("bank", [0, 20])
@pytest.mark.parametrize("own_keys", ["excluded", "kept"])
@pytest.mark.parametrize("space", ["projection", "features"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", [name for name in NAMES if method_named(name).contrasts])
def test_every_method_gives_the_same_loss_and_gradient_in_blocks_of_rows(
    monkeypatch, name, dtype, space, own_keys, bank, w, tau
):
    given = inputs(3, batch=7, bank=bank, w=w, tau=tau)
    given = replace(given, keys=given.keys.to(dtype), bank_keys=given.bank_keys.to(dtype))
    if own_keys == "kept":
        given = replace(given, index=None, bank_index=None)
    others = inputs(8, batch=7, bank=bank)
    own, bank_keys = (others.keys, others.bank_keys) if space == "features" else (given.keys, given.bank_keys)
    method = method_named(name)
    assert method.row_by_row
    results = []
    for block in (1 << 22, 3 * (1 + bank)):  # the whole batch; 3, 3 and 1 rows
        monkeypatch.setattr(losses, "BLOCK_ELEMENTS", block)
        queries = inputs(9, batch=7, bank=bank).keys.to(dtype).requires_grad_()
        loss = relation_loss(queries, own, bank_keys, method.relation_of(given), 0.1)
        loss.sum().backward()
        results.append((loss.detach(), queries.grad))
    whole = relation_loss(queries.detach(), own, bank_keys, relation(name, given), 0.1)
    torch.testing.assert_close(results[0][0], whole, atol=1e-5, rtol=1e-5)
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_a_relation_that_looks_at_the_whole_batch_is_computed_once_and_whole(monkeypatch):
    seen = []

    def centred(given: RelationInputs) -> torch.Tensor:
        seen.append(len(given.keys))
        return replace(given, keys=given.keys - given.keys.mean(dim=0)).masked_relation()

    tenth = Method(name="centred", title="", summary="", relation=centred, labels="coarse")
    monkeypatch.setattr(losses, "BLOCK_ELEMENTS", 21)
    given = inputs()
    loss = relation_loss(inputs(9).keys, given.keys, given.bank_keys, tenth.relation_of(given), 0.1)
    assert seen == [6]
    expected = relation_loss(inputs(9).keys, given.keys, given.bank_keys, centred(given), 0.1)
    torch.testing.assert_close(loss, expected)


def test_a_method_without_contrast_has_no_relation_to_ask_for():
    with pytest.raises(UsageError, match="SupCE does not contrast"):
        method_named("supce").relation_of(inputs())


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
        del registry._METHODS["halfcon"]


@contextmanager
def installed(monkeypatch, load):
    """As if a package named a module in its entry points, whose import does what `load` does."""

    entry = SimpleNamespace(name="tenth", value="tenth_package", load=load)
    monkeypatch.setattr(registry, "entry_points", lambda group: [entry] if group == "maskcon.methods" else [])
    registry._load_plugins.cache_clear()
    try:
        yield
    finally:
        registry._load_plugins.cache_clear()


def test_methods_of_installed_packages_are_loaded(monkeypatch):

    tenth = Method(
        name="plugged", title="", summary="", relation=lambda given: given.self_relation(), labels="none"
    )

    with installed(monkeypatch, lambda: register(tenth)):
        try:
            assert method_named("plugged") is tenth
            assert all_methods()[-1] is tenth
        finally:
            del registry._METHODS["plugged"]


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

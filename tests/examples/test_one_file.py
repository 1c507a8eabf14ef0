"""The page in examples/ says the same as the package."""

from __future__ import annotations

import copy
import importlib.util
import inspect
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from maskcon.config.resolution import resolve
from maskcon.data import load
from maskcon.methods.losses import relation_loss
from maskcon.methods.memory_bank import MemoryBank
from maskcon.methods.relations import masked_relation
from maskcon.models import MomentumPair, build_backbone, build_model
from maskcon.retrieval.recall import recall_at_k
from maskcon.training.schedule import learning_rate, ramped
from maskcon.training.state import MOMENTUM

FILE = Path(__file__).parents[2] / "examples" / "maskcon_one_file.py"
spec = importlib.util.spec_from_file_location("maskcon_one_file", FILE)
assert spec is not None
assert spec.loader is not None
page = importlib.util.module_from_spec(spec)
spec.loader.exec_module(page)

MOST_LINES = 120


def unit(rows: int, dim: int, generator: torch.Generator) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.randn(rows, dim, generator=generator), dim=1)


def filled_bank(size: int, dim: int, generator: torch.Generator):
    bank = page.Bank(size, dim)
    labels = torch.randint(0, 3, (size,), generator=generator)
    numbers = torch.randint(0, 9, (size,), generator=generator)  # few numbers: own stale keys are common
    bank.enqueue(unit(size, dim, generator), labels, numbers)
    return bank


cases = given(
    seed=st.integers(0, 2**31),
    batch=st.integers(1, 7),
    bank_size=st.integers(1, 20),
    dim=st.integers(2, 6),
    tau=st.sampled_from([0.005, 0.05, 0.1, 1.0, math.inf]),
)


def test_the_page_is_one_page():
    lines = [line for line in FILE.read_text(encoding="utf-8").splitlines() if line.strip()]
    assert len(lines) <= MOST_LINES


@cases
@settings(max_examples=60, deadline=None)
def test_relation_of_the_page_equals_the_package_with_own_stale_keys_left_out(
    seed, batch, bank_size, dim, tau
):
    generator = torch.Generator().manual_seed(seed)
    bank = filled_bank(bank_size, dim, generator)
    keys = unit(batch, dim, generator)
    labels = torch.randint(0, 4, (batch,), generator=generator)  # class 3 is never in the bank
    numbers = torch.randint(0, 9, (batch,), generator=generator)
    expected = masked_relation(keys, bank.h, labels, bank.y, tau, index=numbers, bank_index=bank.i)
    torch.testing.assert_close(page.masked_relation(keys, labels, numbers, bank, tau), expected)


@cases
@settings(max_examples=40, deadline=None)
def test_loss_of_the_page_equals_the_package_in_value_and_gradient(seed, batch, bank_size, dim, tau):
    generator = torch.Generator().manual_seed(seed)
    results = []
    start = filled_bank(bank_size, dim, generator)
    queries, keys = unit(batch, dim, generator), unit(batch, dim, generator)
    relation = torch.rand(batch, 1 + bank_size, generator=generator).softmax(dim=1)
    weights = torch.rand(batch, generator=generator)  # unequal rows, so that a mixed-up gradient shows
    for ours in (True, False):
        q = queries.clone().requires_grad_()
        if ours:
            loss = page.contrastive_loss(q, keys, start, relation, 0.1)
        else:
            loss = relation_loss(q, keys, start.h, relation, 0.1)
        (loss * weights).sum().backward()
        results.append((loss.detach(), q.grad))
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


@given(seed=st.integers(0, 2**31), count=st.integers(2, 40), dim=st.integers(4, 7), classes=st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_recall_of_the_page_equals_the_package_also_with_duplicates(seed, count, dim, classes):
    generator = torch.Generator().manual_seed(seed)
    # Lengths of 1 and 2 make products exact: summed in any order, on any processor, equal ones stay equal.
    features = torch.zeros(count, dim)
    for row in features:
        filled = torch.randperm(dim, generator=generator)[
            : 1 + 3 * int(torch.rand(1, generator=generator) < 0.7)
        ]
        row[filled] = torch.randint(0, 2, filled.shape, generator=generator).float() * 2 - 1
    features[count // 2 :] = features[: count - count // 2].clone()  # the second half is a copy of the first
    labels = torch.randint(0, classes, (count,), generator=generator)
    assert page.recall_at_1(features, labels) == pytest.approx(recall_at_k(features, labels, ks=(1,))[1])


@given(size=st.integers(1, 12), batches=st.lists(st.integers(1, 15), min_size=1, max_size=6))
@settings(max_examples=60, deadline=None)
def test_bank_of_the_page_holds_what_the_package_holds_through_every_wrap_around(size, batches):
    mine, theirs = page.Bank(size, 3), MemoryBank(size, 3)
    arrived = 0
    for count in batches:
        keys = torch.randn(count, 3)
        numbers = torch.arange(arrived, arrived + count)  # counts arrivals, so that sorting gives the order
        arrived += count
        mine.enqueue(keys, numbers % 5, numbers)
        theirs.enqueue(keys, numbers % 5, numbers)
        order = theirs.index.argsort()
        assert torch.equal(mine.i, theirs.index[order])
        assert torch.equal(mine.y, theirs.coarse[order])
        assert torch.equal(mine.h, theirs.keys[order])


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.99, 1.0])
def test_momentum_update_of_the_page_equals_the_package(momentum):
    model = build_model(
        build_backbone("resnet6", image_size=16, in_channels=1, width=4), projection=8, hidden=8
    )
    pair = MomentumPair(model)
    for parameter in pair.query.parameters():
        torch.nn.init.normal_(parameter)
    key = copy.deepcopy(pair.key)
    for _ in range(3):
        page.momentum_update(pair.query, key, momentum)
        pair.update(momentum)
    for mine, theirs in zip(key.state_dict().values(), pair.key.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_net_of_the_page_is_the_one_of_the_preset():
    preset = resolve("embedded", method="maskcon", preset="cpu", overrides={}).config
    theirs = build_backbone(preset.backbone, image_size=32, in_channels=1, width=preset.width, stem="stride2")
    mine = page.Encoder(preset.width, preset.projector_hidden, preset.projection_dim)
    values = theirs.state_dict().values()  # both nets list their layers from the image on
    mine.f.load_state_dict(dict(zip(mine.f.state_dict(), values, strict=True)))
    images = torch.randn(5, 1, 32, 32)
    torch.testing.assert_close(mine.f(images), theirs(images))
    heads = build_model(theirs, projection=preset.projection_dim, hidden=preset.projector_hidden)
    assert heads.projector is not None
    mine.h.load_state_dict(dict(zip(mine.h.state_dict(), heads.projector.state_dict().values(), strict=True)))
    torch.testing.assert_close(mine(images), heads.projector(theirs(images)))


def test_every_setting_of_the_page_is_the_presets_so_that_none_was_chosen_on_test_images():
    preset = resolve("embedded", method="maskcon", preset="cpu", overrides={}).config
    given = inspect.signature(page.train).parameters
    assert {name: value.default for name, value in given.items() if name != "data"} == {
        "epochs": preset.epochs,
        "w": preset.w,
        "tau": preset.tau,
        "tau_0": preset.contrast_temperature,
        "m": preset.key_momentum,
        "bank_size": preset.bank_size,
        "batch": preset.batch_size,
        "rate": preset.learning_rate,
        "rate_warmup": preset.warmup_epochs,
        "w_warmup": preset.relation_warmup_epochs,
        "decay": preset.weight_decay,
        "width": preset.width,
        "hidden": preset.projector_hidden,
        "dim": preset.projection_dim,
    }
    fixed = (MOMENTUM, preset.schedule, preset.drop_last)
    assert fixed == (0.9, "cosine", False)  # written out in the page


@given(warmup=st.integers(0, 9), total=st.integers(1, 30))
@settings(max_examples=60, deadline=None)
def test_schedules_of_the_page_equal_the_package(warmup, total):
    for step in range(total):
        share = learning_rate(step, peak=1.0, total_steps=total, warmup_steps=warmup)
        assert page.rate_share(step, warmup, total) == pytest.approx(share, abs=1e-12)
        assert page.ramp(step, warmup) == pytest.approx(ramped(step, value=1.0, warmup_steps=warmup))


def test_the_page_learns_and_scores_between_none_and_all():
    torch.manual_seed(0)
    data = load("embedded").limited(128, 40)
    small = {"w": 0.5, "bank_size": 96, "batch": 32, "width": 8, "hidden": 32, "dim": 16, "w_warmup": 1}
    history = list(page.train(data, 5, **small))
    assert history[-1][0] < history[0][0] - 0.1
    assert all(0 <= recall <= 1 for _, recall in history)

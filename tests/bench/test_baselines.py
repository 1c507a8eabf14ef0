"""The baselines do the same work: a comparison with something else would say nothing."""

from __future__ import annotations

import itertools
import time
from functools import partial

import numpy as np
import pytest
import torch

from maskcon import transforms
from maskcon.bench import loss_memory, pil_views, recall, subjects
from maskcon.bench.plain import PlainStep, PlainViews
from maskcon.bench.views import as_a_run_makes_them, pictures, with_pil
from maskcon.retrieval.recall import recall_at_k
from maskcon.transforms.autoaugment import CIFAR10_TABLE, GEOMETRIC, AutoAugment
from maskcon.transforms.boxes import WholeImage
from maskcon.transforms.policies import ViewPolicy

SMALL = {"batch_size": 8, "bank_size": 64}


@pytest.mark.parametrize("make", [subjects.cpu, partial(subjects.resnet18, width=16)])
def test_the_plain_step_learns_what_ours_learns(make):
    subject = make(**SMALL, w=0.8, tau=0.1)
    plain = PlainStep.like(subject)
    query, key = subject.ready_views(), subject.ready_views().flip(3)
    given = subject.with_views(query, key)
    labels, index = subject.data.labels[subject.rows], subject.data.index[subject.rows]
    for _ in range(3):  # later losses follow from the first steps' gradients, moving averages and keys
        ours = given.step().loss.item()
        assert plain.step(query.contiguous(), key.contiguous(), labels, index) == pytest.approx(
            ours, rel=1e-4
        )
    bank = subject.learner.bank
    assert bank is not None
    torch.testing.assert_close(plain.bank, bank.keys, atol=1e-4, rtol=1e-3)
    assert torch.equal(plain.bank_labels, bank.coarse)
    for name, value in subject.learner.model.state_dict().items():
        torch.testing.assert_close(plain.query.state_dict()[name], value, atol=1e-4, rtol=1e-3)


def test_the_plain_step_makes_views_of_the_same_images_and_policies():
    subject = subjects.cpu(**SMALL)
    query, key = PlainViews.like(subject)()
    assert query.shape == key.shape == subject.ready_views().shape
    assert query.is_contiguous()
    assert not torch.equal(query, key)


def test_relation_and_loss_written_out_equal_ours_with_gradient():
    inputs = loss_memory.make_inputs(12, 40)
    for ours, plain in zip(loss_memory.ours(*inputs), loss_memory.written_out(*inputs), strict=True):
        torch.testing.assert_close(ours, plain, atol=1e-5, rtol=1e-4)


def test_recall_by_faiss_and_by_a_matrix_equals_ours():
    pytest.importorskip("faiss")
    embeddings, labels = recall.clustered(400, 16)
    expected = recall_at_k(embeddings, labels, recall.KS)
    assert 0.1 < expected[1] < 0.9  # neither random nor solved: some count behind a few others
    for other in (recall.by_faiss, recall.at_once):
        assert other(embeddings, labels) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("family", ["cifar", "photos"])
def test_views_of_both_kinds_have_one_shape_and_scale(family):
    images = pictures(6, 40)
    ours = as_a_run_makes_them(family)(images, 32)
    theirs = with_pil(np.ascontiguousarray(images.permute(0, 2, 3, 1).numpy()), family, 32)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.shape == other.shape == (6, 3, 32, 32)
        assert other.dtype == np.float32
        assert 0 <= other.min() < other.max() <= 1


@pytest.mark.parametrize(("family", "place"), [("cifar", 0), ("photos", 0), ("photos", 1)])
def test_pil_views_agree_with_the_policy_for_the_same_draws(family, place):
    images = pictures(48, 40)
    policy = transforms.pair(family)[place]
    table = torch.rand(48, policy.draws, generator=torch.Generator().manual_seed(3))
    expected = policy(images, table, size=32)
    last = np.ascontiguousarray(images.permute(0, 2, 3, 1).numpy())
    found = pil_views.made_of(last, pil_views.PAIRS[family][place], table.tolist(), 32)
    difference = (torch.from_numpy(found) - expected).abs() * 255
    # PIL rounds to whole levels after every step, and its hues are of 8 bits
    assert difference.mean() < (0.6 if place == 0 else 3.0)
    assert difference.flatten(1).mean(dim=1).max() < (1.0 if place == 0 else 12.0)


OPERATIONS = [
    (place, turn)
    for place, turn in itertools.product(range(len(CIFAR10_TABLE)), range(2))
    if CIFAR10_TABLE[place][turn][1] > 0  # one is never applied
]


@pytest.mark.parametrize(("place", "turn"), OPERATIONS)
def test_each_operation_of_the_table_agrees_with_the_policy(place, turn):
    name, _, _ = CIFAR10_TABLE[place][turn]
    draws = torch.full((2, 5), 0.999)
    draws[:, 0] = (place + 0.5) / len(CIFAR10_TABLE)
    draws[:, 1 + turn] = 0.0  # this operation and no other
    draws[:, 3 + turn] = torch.tensor([0.2, 0.8])  # with either sign
    images = pictures(2, 32)
    policy = ViewPolicy("table alone", WholeImage(), operations=(AutoAugment(),))
    expected = policy(images, draws, size=32) * 255
    last = np.ascontiguousarray(images.permute(0, 2, 3, 1).numpy())
    alone = pil_views.made_of(
        last, lambda image, row, _: pil_views.autoaugmented(image, row), draws.tolist(), 32
    )
    difference = (torch.from_numpy(alone) * 255 - expected).abs()
    if name in GEOMETRIC:
        assert difference.mean() < 0.6  # whole levels here, fractions there
        assert (difference > 1.5).float().mean() < 0.02  # the rim of what is uncovered
    else:
        assert difference.max() < 0.01


def test_a_projected_time_is_near_that_of_the_whole():
    embeddings, labels = recall.clustered(12_000, 64)
    begin = time.process_time()
    recall_at_k(embeddings, labels)
    whole = time.process_time() - begin
    part = recall.a_stretch(count=12_000, dimension=64, seconds=0.1)
    assert "projected" in str(part["note"])
    assert 0.4 < float(part["projected_seconds"]) / whole < 2.0

"""The baselines do the same work: a comparison with something else would say nothing."""

from __future__ import annotations

import time
from functools import partial

import pytest
import torch
from benchmarks.bench import loss_memory, recall, subjects
from benchmarks.bench.plain import PlainStep, PlainViews

from maskcon.retrieval.recall import recall_at_k

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
    for ours, plain in zip(loss_memory.ours(inputs), loss_memory.written_out(inputs), strict=True):
        torch.testing.assert_close(ours, plain, atol=1e-5, rtol=1e-4)


def test_recall_by_faiss_and_by_a_matrix_equals_ours():
    pytest.importorskip("faiss")
    embeddings, labels = recall.clustered(400, 16)
    expected = recall_at_k(embeddings, labels, recall.KS)
    assert 0.1 < expected[1] < 0.9  # neither random nor solved: some count behind a few others
    for other in (recall.by_faiss, recall.by_matrix):
        assert other(embeddings, labels) == pytest.approx(expected, abs=1e-6)


def test_a_projected_time_is_near_that_of_the_whole():
    embeddings, labels = recall.clustered(12_000, 64)
    begin = time.process_time()
    recall_at_k(embeddings, labels)
    whole = time.process_time() - begin
    part = recall.a_stretch(count=12_000, dimension=64, seconds=0.1)
    assert "projected" in str(part["note"])
    assert 0.4 < float(part["projected_seconds"]) / whole < 2.0

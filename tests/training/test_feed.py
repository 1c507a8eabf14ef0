from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from maskcon.retrieval.encode import Feed
from maskcon.training import loop
from tests.miniature import miniature
from tests.training.runs import fit, weights

CPU = torch.device("cpu")


@pytest.fixture
def images() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 255, (20, 3, 4, 5), dtype=np.uint8)


@pytest.fixture
def mapped(images, tmp_path) -> np.memmap:
    target = np.memmap(tmp_path / "images.bin", dtype=np.uint8, mode="w+", shape=images.shape)
    target[:] = images
    return target


def test_resident_and_mapped_sets_give_the_same_batches(images, mapped):
    sizes = np.random.default_rng(1).integers(1, 4, (20, 2), dtype=np.int32)
    rows = torch.tensor([3, 0, 19, 3])
    for array in (images, mapped):
        feed = Feed(array, sizes, CPU)
        batch, valid = feed.take(rows)
        assert torch.equal(batch, torch.from_numpy(images[[3, 0, 19, 3]]))
        assert torch.equal(valid, torch.from_numpy(sizes[[3, 0, 19, 3]]))
        feed.close()


def test_a_prefetched_batch_is_read_once_for_both_views(mapped, monkeypatch):
    feed = Feed(mapped, None, CPU)
    reads = []
    real = Feed._read
    monkeypatch.setattr(Feed, "_read", lambda self, rows: (reads.append(rows.tolist()), real(self, rows))[1])
    rows = torch.tensor([1, 2, 3])
    feed.prefetch(rows, rows.clone())
    first, _ = feed.take(rows)
    second, _ = feed.take(rows.clone())
    assert torch.equal(first, second)
    assert reads == [[1, 2, 3]]
    feed.close()


def test_batches_nobody_came_for_are_forgotten_and_others_read_on_demand(mapped, images):
    feed = Feed(mapped, None, CPU)
    for start in range(5):
        feed.prefetch(torch.tensor([start]))
    assert len(feed._ahead) == 1
    batch, _ = feed.take(torch.tensor([11, 12]))
    assert torch.equal(batch, torch.from_numpy(images[[11, 12]]))
    feed.close()


def test_a_run_on_a_mapped_set_reads_each_batch_once_and_the_next_one_during_a_step(tmp_path, monkeypatch):
    data = miniature()
    target = np.memmap(tmp_path / "images.bin", dtype=np.uint8, mode="w+", shape=data.train.images.shape)
    target[:] = data.train.images
    mapped = replace(data, train=replace(data.train, images=target))
    reads: list[bytes] = []
    steps: list[tuple[bytes, set[bytes]]] = []
    real_read, real_step = Feed._read, loop.train_step

    def read(self, rows):
        reads.append(rows.numpy().tobytes())
        return real_read(self, rows)

    def step(learner, training_data, config, place, rows):
        steps.append((rows.numpy().tobytes(), set(training_data.feed._ahead)))
        return real_step(learner, training_data, config, place, rows)

    monkeypatch.setattr(Feed, "_read", read)
    monkeypatch.setattr(loop, "train_step", step)
    monkeypatch.setattr(loop.Training, "_prime", lambda self, bank: reads.clear())
    fit(tmp_path / "mapped", data=mapped)
    assert len(steps) == 10
    assert sorted(reads) == sorted(name for name, _ in steps)
    for number, (name, asked) in enumerate(steps):
        last_of_epoch = number % 5 == 4
        assert asked == ({name} if last_of_epoch else {name, steps[number + 1][0]})
    monkeypatch.undo()
    monkeypatch.setattr(loop.Training, "_prime", lambda self, bank: None)
    fit(tmp_path / "resident", data=data)
    assert weights(tmp_path / "mapped") == weights(tmp_path / "resident")


def test_only_a_set_that_is_read_asks_to_be_read_ahead(images, mapped):
    for array, reads_ahead in ((images, False), (mapped, True)):
        feed = Feed(array, None, CPU)
        assert feed.reads_ahead is reads_ahead
        feed.close()

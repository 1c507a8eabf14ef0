from __future__ import annotations

import itertools

import torch
from hypothesis import given
from hypothesis import strategies as st

from maskcon.training.schedule import (
    SMALLEST_SHARE,
    epoch_batches,
    generator,
    learning_rate,
    ramped,
    share_bounds,
    steps_in_epoch,
    uniforms,
)

sizes = st.tuples(st.integers(4, 300), st.integers(2, 50), st.integers(1, 4), st.booleans())


@given(sizes, st.integers(0, 3))
def test_every_row_appears_exactly_once_an_epoch(case, epoch):
    count, batch, processes, _ = case
    batches = epoch_batches(count, batch, seed=1, epoch=epoch, processes=processes)
    assert sorted(torch.cat(batches).tolist()) == list(range(count))


@given(sizes)
def test_steps_in_epoch_is_the_number_of_batches(case):
    count, batch, processes, drop = case
    batches = epoch_batches(count, batch, seed=1, epoch=0, drop_last=drop, processes=processes)
    assert len(batches) == steps_in_epoch(count, batch, drop_last=drop, processes=processes)


@given(sizes)
def test_no_process_gets_a_share_too_small_for_batchnorm_when_there_is_enough_data(case):
    count, batch, processes, _ = case
    if min(count, batch) < SMALLEST_SHARE * processes:
        return
    for rows in epoch_batches(count, batch, seed=1, epoch=0, processes=processes):
        assert min(end - start for start, end in share_bounds(len(rows), processes)) >= SMALLEST_SHARE


@given(st.integers(0, 100), st.integers(1, 8))
def test_shares_cover_a_batch_in_order_and_differ_by_at_most_one(count, processes):
    bounds = share_bounds(count, processes)
    assert [row for start, end in bounds for row in range(start, end)] == list(range(count))
    lengths = [end - start for start, end in bounds]
    assert max(lengths) - min(lengths) <= 1


def test_epochs_and_seeds_are_shuffled_differently_and_repeatably():
    order = lambda seed, epoch: torch.cat(epoch_batches(50, 8, seed=seed, epoch=epoch)).tolist()  # noqa: E731
    assert order(0, 0) == order(0, 0)
    assert order(0, 0) != order(0, 1)
    assert order(0, 0) != order(1, 0)


def test_drop_last_drops_only_a_short_batch_and_never_the_only_one():
    assert [len(b) for b in epoch_batches(10, 4, seed=0, epoch=0, drop_last=True)] == [4, 4]
    assert [len(b) for b in epoch_batches(8, 4, seed=0, epoch=0, drop_last=True)] == [4, 4]
    assert [len(b) for b in epoch_batches(3, 4, seed=0, epoch=0, drop_last=True)] == [3]


def test_random_tables_depend_on_each_part_of_their_place():
    base = uniforms(4, 3, 0, "query", 1, 2)
    assert torch.equal(base, uniforms(4, 3, 0, "query", 1, 2))
    for other in (
        uniforms(4, 3, 1, "query", 1, 2),
        uniforms(4, 3, 0, "key", 1, 2),
        uniforms(4, 3, 0, "query", 2, 2),
        uniforms(4, 3, 0, "query", 1, 3),
    ):
        assert not torch.equal(base, other)
    assert generator(0, "a", 1, 2).initial_seed() != generator(0, "a", 12, 0).initial_seed()


def test_learning_rate_rises_from_zero_to_the_peak_and_falls_to_zero():
    rates = [learning_rate(s, peak=0.5, total_steps=100, warmup_steps=10) for s in range(101)]
    assert rates[0] == 0
    assert rates[5] == 0.25
    assert rates[10] == max(rates) == 0.5
    assert abs(rates[55] - 0.25) < 1e-9
    assert rates[100] == 0
    assert all(a >= b for a, b in itertools.pairwise(rates[10:]))


def test_a_linear_rate_falls_by_the_same_step_each_time_to_zero():
    rates = [
        learning_rate(s, peak=0.5, total_steps=110, warmup_steps=10, schedule="linear") for s in range(112)
    ]
    assert rates[5] == 0.25
    assert rates[10] == 0.5
    assert rates[60] == 0.25
    assert rates[110] == rates[111] == 0
    assert all(abs(a - b - 0.005) < 1e-12 for a, b in itertools.pairwise(rates[10:111]))


def test_relation_weight_rises_in_a_straight_line_and_stays():
    assert [ramped(s, value=0.8, warmup_steps=4) for s in range(6)] == [
        0.0,
        0.2,
        0.4,
        0.6000000000000001,
        0.8,
        0.8,
    ]
    assert ramped(0, value=0.8, warmup_steps=0) == 0.8

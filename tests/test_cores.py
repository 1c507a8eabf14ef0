"""Parts of work, a core each."""

from __future__ import annotations

import threading
import time

import pytest
import torch

from maskcon.cores import in_order

CPU = torch.device("cpu")


@pytest.fixture(params=[1, 3])
def cores(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_results_come_in_order_whoever_is_done_first(cores):
    def work(number):
        time.sleep(0.02 if number % 3 == 0 else 0)
        return number

    assert list(in_order(work, range(20), CPU)) == list(range(20))


def test_each_part_has_one_core_and_no_gradients_and_the_number_comes_back(cores):
    weight = torch.ones(2, requires_grad=True)
    found = list(in_order(lambda _: (torch.get_num_threads(), (2 * weight).requires_grad), range(6), CPU))
    assert set(found) == {(1, False)}
    assert torch.get_num_threads() == cores
    later = []
    thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert later == [cores]


def test_the_same_bits_with_any_number_of_cores():
    torch.manual_seed(0)
    net = torch.nn.Conv2d(3, 8, 3)
    images = torch.rand(6, 4, 3, 20, 20)
    before, made = torch.get_num_threads(), []
    for count in (1, 4):
        torch.set_num_threads(count)
        made.append(torch.stack(list(in_order(net, images, CPU))))
    torch.set_num_threads(before)
    assert torch.equal(*made)


def test_an_error_reaches_the_caller_and_what_has_not_begun_is_dropped(cores):
    begun = []

    def work(number):
        begun.append(number)
        if number == 2:
            raise ValueError("two")
        return number

    given = in_order(work, range(50), CPU)
    assert [next(given), next(given)] == [0, 1]
    with pytest.raises(ValueError, match="two"):
        next(given)
    assert len(begun) <= 2 + 2 * (cores + 1)


def test_who_stops_early_leaves_no_thread_behind(cores):
    before = threading.active_count()
    given = in_order(lambda number: number, range(50), CPU)
    next(given)
    given.close()
    assert threading.active_count() == before

from __future__ import annotations

import time

import pytest

from maskcon.bench.fresh import in_fresh_process
from maskcon.bench.measure import Effort, in_turns, peak_extra_bytes
from maskcon.errors import MaskconError


def test_work_is_done_turn_by_turn_and_every_second_turn_backwards():
    done: list[str] = []
    turns = in_turns({"a": lambda: done.append("a"), "b": lambda: done.append("b")}, 3, calls=2)
    assert "".join(done) == "ab" + "aabb" + "bbaa" + "aabb"
    assert len(turns.seconds["a"]) == 3


def test_a_ratio_is_taken_within_turns():
    turns = in_turns({"long": lambda: time.sleep(0.02), "short": lambda: time.sleep(0.01)}, 3, warm_up=0)
    assert 1.2 < turns.ratio("long", "short") < 4


def a_peak(megabytes: int) -> float:
    """Run by a fresh process."""
    return peak_extra_bytes(lambda: (b"x" * (megabytes * 1_000_000)).count(b"y")) / 1e6


def test_peak_memory_is_that_of_the_work():
    found = in_fresh_process("tests.bench.test_measure:a_peak", megabytes=80)
    assert 75 < found < 100


def test_a_failure_in_a_fresh_process_is_told_with_its_last_line():
    with pytest.raises(MaskconError, match=r"No module named 'maskcon\.nowhere'"):
        in_fresh_process("maskcon.nowhere:work")


def test_quick_effort_takes_few_turns():
    assert Effort(quick=True).turns(9) == 2
    assert Effort().turns(9) == 9

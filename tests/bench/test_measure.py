from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from benchmarks.bench.measure import (
    ON_ONE_THREAD,
    ROOT,
    Apart,
    Effort,
    in_fresh_process,
    in_turns,
    peak_extra_bytes,
)

from maskcon._utils.errors import MaskconError


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


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for processes in /proc")
@pytest.mark.parametrize("how", ["terminate", "kill"])
def test_a_fresh_process_does_not_outlive_the_one_that_wants_its_answer(how):
    code = "from benchmarks.bench.measure import in_fresh_process; in_fresh_process('signal:pause')"
    asking = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)

    def until(done: Callable[[], Any]) -> Any:
        end = time.monotonic() + 60
        while not (found := done()):
            assert time.monotonic() < end
            time.sleep(0.05)
        return found

    def has_ended(process: str) -> bool:
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        return state == "Z"  # a container may have no process that reaps it

    try:
        listed = Path(f"/proc/{asking.pid}/task/{asking.pid}/children")
        (child,) = until(lambda: listed.read_text().split())
    finally:
        getattr(asking, how)()
        asking.wait()
    until(lambda: has_ended(child))


def test_quick_effort_takes_few_turns():
    assert Effort(quick=True).turns(9) == 2
    assert Effort().turns(9) == 9


@dataclass
class Busy:
    """Works for so many seconds of processor time, and is through after some calls."""

    seconds: float
    left: int = 100

    def __call__(self) -> None:
        end = time.process_time() + self.seconds
        while time.process_time() < end:
            pass
        self.left -= 1
        if self.left == 0:
            os._exit(3)


def test_work_apart_is_timed_in_its_own_process_beside_ours():
    here: list[float] = []
    with Apart({"long": Busy(0.04), "short": Busy(0.02)}) as apart:
        turns = in_turns(
            {"ours": lambda: here.append(1.0)},
            3,
            apart={name: apart.piece(name) for name in ("long", "short")},
            clock=ON_ONE_THREAD,
        )
    assert len(here) == 4  # one to warm up, three turns
    assert turns.ratio("long", "short") == pytest.approx(2, rel=0.3)
    assert turns.median("short") == pytest.approx(0.02, rel=0.3)


def test_a_process_apart_that_ends_is_told():
    with Apart({"short": Busy(0.0, left=2)}) as apart:
        piece = apart.piece("short")
        assert piece(1) >= 0
        with pytest.raises(MaskconError, match="'short' has ended"):
            piece(1)
        with pytest.raises(MaskconError, match="has ended"):
            piece(1)

"""Timing in turns, so that what else runs on the machine strikes all alike; and peak memory.

Work on one thread is timed by the processor time of this process: without company that is the time by the clock, and in
company it leaves out the waiting for a core, which no turn shares evenly. What has several threads or processes is
timed by the clock.
"""

from __future__ import annotations

import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

Work = Callable[[], object]
Clock = Callable[[], float]
BY_THE_CLOCK: Clock = time.perf_counter
ON_ONE_THREAD: Clock = time.process_time


@dataclass(frozen=True)
class Effort:
    """How much is measured. quick: few turns at small sizes, to see that all works; its figures say little."""

    quick: bool = False
    whole_million: bool = False

    def turns(self, full: int) -> int:
        return 2 if self.quick else full


@dataclass(frozen=True)
class Turns:
    """Seconds of each piece of work, turn by turn."""

    seconds: Mapping[str, tuple[float, ...]]

    def median(self, name: str) -> float:
        return statistics.median(self.seconds[name])

    def ratio(self, above: str, below: str) -> float:
        """Median over the turns of the ratio within a turn.

        >>> Turns({"a": (2.0, 9.0, 3.0), "b": (1.0, 3.0, 1.5)}).ratio("a", "b")
        2.0
        """
        pairs = zip(self.seconds[above], self.seconds[below], strict=True)
        return statistics.median(a / b for a, b in pairs)


def timed(work: Work, calls: int, clock: Clock) -> float:
    """Mean seconds of a call."""
    begin = clock()
    for _ in range(calls):
        work()
    return (clock() - begin) / calls


def in_turns(
    work: Mapping[str, Work],
    turns: int,
    *,
    apart: Mapping[str, Callable[[int], float]] | None = None,
    clock: Clock = BY_THE_CLOCK,
    calls: int = 1,
    warm_up: int = 1,
) -> Turns:
    """Time each piece of work once a turn, after some calls to warm up; every second turn goes backwards.

    apart: pieces that time themselves, given a number of calls (`maskcon.bench.fresh.Apart`).
    calls: how often a piece is called for one time, where a single call is too short to be timed.
    """
    pieces = {name: partial(timed, piece, clock=clock) for name, piece in work.items()} | dict(apart or {})
    if warm_up:
        for piece in pieces.values():
            piece(warm_up)
    seconds: dict[str, list[float]] = {name: [] for name in pieces}
    for turn in range(turns):
        names = list(pieces) if turn % 2 == 0 else list(pieces)[::-1]
        for name in names:
            seconds[name].append(pieces[name](calls))
    return Turns({name: tuple(values) for name, values in seconds.items()})


def peak_extra_bytes(work: Work) -> int:
    """How much more memory this process held during a piece of work, at most, than before it.

    Meant for a fresh process: memory that was used before and given back hides a later peak, where the system cannot
    forget the highest mark.
    """
    before = _resident_bytes()
    forgotten = _forget_peak()
    base = before if before is not None else _peak_bytes(forgotten=False)
    work()
    return max(0, _peak_bytes(forgotten=forgotten) - base)


def _status(name: str) -> int | None:
    with suppress(OSError, ValueError):
        for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return None


def _resident_bytes() -> int | None:
    return _status("VmRSS")


def _forget_peak() -> bool:
    """Let Linux forget the highest mark so far; False where it cannot."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    now, mark = _resident_bytes(), _status("VmHWM")
    return now is not None and mark is not None and mark <= now * 1.05


def _peak_bytes(*, forgotten: bool) -> int:
    mark = _status("VmHWM") if forgotten else None
    if mark is not None:
        return mark
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

"""Timing in turns, peak memory, and work in a process of its own.

Turns let other load on the machine affect all pieces of work alike. Work on one thread is timed by the CPU time of its
process, which leaves out the waiting for a core; work with several threads or processes is timed by the wall clock.

`in_fresh_process` runs `python -m benchmarks.bench.measure MODULE:FUNCTION ARGUMENTS`, with JSON both ways; `Apart`
keeps pieces of work in another process and times them turn by turn.
"""

from __future__ import annotations

import importlib
import json
import os
import pickle
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from maskcon._utils.errors import MaskconError
from maskcon.training.signals import stop_with_parent

ROOT = Path(__file__).parents[2]  # of the repository, where `benchmarks` is importable
Work = Callable[[], object]
Clock = Callable[[], float]
BY_THE_CLOCK: Clock = time.perf_counter
ON_ONE_THREAD: Clock = time.process_time


@dataclass(frozen=True)
class Effort:
    """How much is measured. quick: few turns at small sizes, to check that everything works."""

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
        """Return the median over turns of the ratio within a turn.

        >>> Turns({"a": (2.0, 9.0, 3.0), "b": (1.0, 3.0, 1.5)}).ratio("a", "b")
        2.0
        """
        pairs = zip(self.seconds[above], self.seconds[below], strict=True)
        return statistics.median(a / b for a, b in pairs)


def timed(work: Work, calls: int, clock: Clock) -> float:
    """Return the mean seconds per call."""
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
    """Time each piece of work once per turn, after warming up; every second turn is in reverse order.

    Args:
        apart: Pieces that time themselves, given a number of calls (see `Apart`).
        calls: Calls per timing, for pieces too short to be timed alone.
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
    """Return the peak memory of this process during the work, beyond what it held before.

    Meant for a fresh process: where the system cannot reset its peak counter, earlier use hides a later peak.
    """
    before = _resident_bytes()
    was_reset = _reset_peak()
    base = before if before is not None else _peak_bytes(was_reset=False)
    work()
    return max(0, _peak_bytes(was_reset=was_reset) - base)


def _status(name: str) -> int | None:
    with suppress(OSError, ValueError):
        for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return None


def _resident_bytes() -> int | None:
    return _status("VmRSS")


def _reset_peak() -> bool:
    """Reset the peak counter of Linux; False where that is not possible."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    now, mark = _resident_bytes(), _status("VmHWM")
    return now is not None and mark is not None and mark <= now * 1.05


def _peak_bytes(*, was_reset: bool) -> int:
    mark = _status("VmHWM") if was_reset else None
    if mark is not None:
        return mark
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _environment(threads: int) -> dict[str, str]:
    """Variables of a child process: as many threads, and this repository importable."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": os.pathsep.join(paths)}


def in_fresh_process(function: str, *, threads: int = 1, **arguments: Any) -> Any:
    """Return what "module:function" gives for these arguments in a new interpreter.

    The new process ends with this one, even if this one is killed: its standard input is a pipe that only this process
    holds open.
    """
    command = [sys.executable, "-m", __name__, function, json.dumps(arguments)]
    environment = _environment(threads)
    reading, writing = os.pipe()
    try:
        done = subprocess.run(
            command, env=environment, stdin=reading, capture_output=True, text=True, check=False
        )
    finally:
        os.close(writing)
        os.close(reading)
    if done.returncode != 0:
        told = done.stderr.strip().splitlines() or ["no output"]
        raise MaskconError(f"{function} in a fresh process ended with {done.returncode}: {told[-1]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


class Apart:
    """Pieces of work in another process, on one thread, that are timed there when asked.

    Settings of this process, such as how it keeps freed memory, do not affect them. They are pickled, so they start
    from their present state.
    """

    def __init__(self, work: Mapping[str, Work]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import serve; serve()"],
            env=_environment(threads=1),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._send(dict(work))

    def piece(self, name: str) -> Callable[[int], float]:
        """Return a function that does this work `calls` times and returns the mean seconds."""

        def seconds(calls: int) -> float:
            self._send((name, calls))
            assert self._process.stdout is not None
            answer = self._process.stdout.readline()
            if not answer:
                raise MaskconError(f"the process that times {name!r} has ended")
            return float(answer)

        return seconds

    def __enter__(self) -> Apart:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()  # closing its input ends it

    def _send(self, value: object) -> None:
        assert self._process.stdin is not None
        try:
            pickle.dump(value, self._process.stdin)
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise MaskconError("the process that times this work has ended") from error


def serve() -> None:
    """Read the work from standard input, then (name, calls) pairs; answer each with seconds."""
    torch.set_num_threads(1)
    work: dict[str, Work] = pickle.load(sys.stdin.buffer)
    while True:
        try:
            name, calls = pickle.load(sys.stdin.buffer)
        except EOFError:  # the parent is done
            return
        sys.stdout.write(f"{timed(work[name], calls, ON_ONE_THREAD)}\n")
        sys.stdout.flush()


def main() -> None:
    stop_with_parent()
    module, _, function = sys.argv[1].partition(":")
    result = getattr(importlib.import_module(module), function)(**json.loads(sys.argv[2]))
    if result is not None:  # only the first of several processes answers
        sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()

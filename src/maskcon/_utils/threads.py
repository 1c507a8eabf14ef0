"""Threads on a shared machine: OpenMP waiting times, usable and free cores."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

# OpenMP threads spin while they wait for each other, even if another program occupies the core of one of them.
# GOMP_SPINCOUNT=3000 costs about 1 % on an idle machine, 1000 about 5 %. KMP_BLOCKTIME (milliseconds) does the same
# for the OpenMP of LLVM and Intel; it was not measured.
SHORT_WAITS = {"GOMP_SPINCOUNT": "3000", "KMP_BLOCKTIME": "1"}
WINDOW_SECONDS = 0.2
STAT = Path("/proc/stat")
BUSY_FIELDS = (0, 1, 2, 5, 6)  # user (includes guests), nice, system, irq, softirq, in ticks


def spin_briefly() -> None:
    """Let OpenMP threads spin only briefly before they sleep.

    Variables that the user set stay. Call this before torch is imported: OpenMP reads them once.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        for name, value in SHORT_WAITS.items():
            os.environ.setdefault(name, value)


def usable_cores() -> int:
    """Count the cores that this process may use, often limited by containers."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def free_cores(window: float = WINDOW_SECONDS) -> int:
    """Count the usable cores that other processes leave idle, at least 1.

    Measures for `window` seconds. Without /proc/stat (Linux) the load average of the last minute is used; without that,
    no core counts as busy.
    """
    return max(1, usable_cores() - round(_busy_cores(window)))


def _busy_cores(window: float) -> float:
    before, own, begun = _busy_seconds(), time.process_time(), time.perf_counter()
    if not before:
        return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    time.sleep(window)
    after, own, spent = _busy_seconds(), time.process_time() - own, time.perf_counter() - begun
    return (sum(after[core] - before[core] for core in before if core in after) - own) / spent


def _busy_seconds() -> Mapping[str, float]:
    """Return the busy seconds per usable core since boot; empty if unknown."""
    with suppress(OSError, ValueError, IndexError, AttributeError):
        usable = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        rows = [line.split() for line in STAT.read_text(encoding="ascii").splitlines()]
        tick = os.sysconf("SC_CLK_TCK")
        return {
            name: sum(int(ticks[field]) for field in BUSY_FIELDS) / tick
            for name, *ticks in rows
            if name in usable
        }
    return {}

"""Threads beside other programs: how long they wait for each other, and how many cores are free for them."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

# OpenMP's threads spin while they wait for each other. If another program holds the core of one thread, the others spin
# until it gets the core back. GOMP_SPINCOUNT=3000 costs about 1 % on an idle machine, 1000 about 5 %.
# KMP_BLOCKTIME (milliseconds) does the same for the OpenMP of LLVM and Intel; it was not measured.
SHORT_WAITS = {"GOMP_SPINCOUNT": "3000", "KMP_BLOCKTIME": "1"}
WINDOW_SECONDS = 0.2
STAT = Path("/proc/stat")
BUSY_FIELDS = (0, 1, 2, 5, 6)  # user, nice, system, irq, softirq, in ticks; user holds the time of guests too


def spin_briefly() -> None:
    """Let the threads of OpenMP spin only briefly before they sleep; what a user has set stays.

    OpenMP reads it once: call this before torch is imported.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        for name, value in SHORT_WAITS.items():
            os.environ.setdefault(name, value)


def usable_cores() -> int:
    """Those that this process may run on: a container or a batch system often gives fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def free_cores(window: float = WINDOW_SECONDS) -> int:
    """The usable cores less those that other processes keep busy now, at least 1. Sleeps for the window, in seconds.

    Without Linux's /proc/stat the load of the last minute counts; without that, no core is busy.
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
    """Seconds since the start of the machine that each usable core was busy; empty where that is not told."""
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

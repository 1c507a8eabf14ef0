from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from maskcon.training import distributed as memory

GLIBC = platform.libc_ver()[0] == "glibc"
FAULTS = """
import resource, torch
from maskcon.training.distributed import give_back_memory, keep_freed_memory

def faults(work):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        work()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() >> 20

large = lambda: torch.ones(12 << 20)  # 48 MB, 12,288 pages
large()
usual = faults(large)
kept = keep_freed_memory()
for _ in range(6):  # small pieces settle into the gaps first, which takes a large one to a new place some times
    faults(large)
less = min(faults(large) for _ in range(3))
held = resident()
give_back_memory()
print(kept, usual, less, held - resident())
"""


def run_apart(**environment: str) -> list[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_") and k != "GLIBC_TUNABLES"}
    done = subprocess.run(
        [sys.executable, "-c", FAULTS],
        env={**clean, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.skipif(not GLIBC, reason="needs glibc")
def test_freed_memory_is_used_again_without_new_pages_and_goes_back_at_the_end():
    kept, usual, less, given_back = run_apart()
    assert kept == "True"
    assert int(usual) > 20 * max(1, int(less))
    assert int(given_back) >= 40  # megabytes


@pytest.mark.skipif(not GLIBC, reason="needs glibc")
def test_settings_of_the_environment_are_left_alone():
    assert run_apart(MALLOC_ARENA_MAX="2")[0] == "False"


def test_another_c_library_is_left_alone(monkeypatch):
    monkeypatch.setattr(memory.platform, "libc_ver", lambda: ("", ""))
    assert memory.keep_freed_memory() is False
    memory.give_back_memory()

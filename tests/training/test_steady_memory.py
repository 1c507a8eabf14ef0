"""Memory of a long run: a leak of a tensor per step or epoch would show in 500 epochs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.commands import environment

SCRIPT = """
import gc, os, sys
from pathlib import Path
from maskcon.config.settings import Machine
from tests.training.runs import Told, fit

class Watch(Told):
    def on_step(self, done, total, images, loss, seconds):
        if done % (total // 500) == 0:
            gc.collect()
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            print(done // (total // 500), pages * os.sysconf("SC_PAGE_SIZE") // 1024)

machine = Machine(checkpoint_every_seconds=5, device="cpu", threads=1)
fit(sys.argv[1], callback=Watch(), machine=machine, epochs=500, eval_every_epochs=25)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_memory_of_five_hundred_epochs_is_flat_within_two_percent(tmp_path):
    where = {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "run")],
        env=environment() | where,
        capture_output=True,
        text=True,
        check=True,
    )
    used = dict(map(int, line.split()) for line in done.stdout.splitlines())
    early = max(kilobytes for epoch, kilobytes in used.items() if 50 < epoch <= 100)
    late = max(kilobytes for epoch, kilobytes in used.items() if epoch > 400)
    print(f"most memory in epochs 51 to 100: {early / 1024:.1f} MB, in 401 to 500: {late / 1024:.1f} MB")
    assert len(used) == 500
    assert late <= 1.02 * early

"""Several processes behave as one with the same global batch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from maskcon.engine.distributed import start
from maskcon.errors import UsageError

ROOT = Path(__file__).parents[2]


def launch(folder: Path, devices: int, steps: int, **settings: object) -> list[dict[str, torch.Tensor]]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.engine.two_processes", str(folder), str(devices), str(steps)]
    done = subprocess.run(
        [*command, json.dumps(settings)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [torch.load(folder / f"state-{devices}-{rank}.pt", weights_only=True) for rank in range(devices)]


FROZEN = {"batchnorm": "frozen", "epochs": 1}  # statistics of a share differ from those of the whole batch


@pytest.mark.parametrize("method", ["maskcon", "coins"])
def test_two_processes_equal_one_with_the_same_global_batch(tmp_path, method):
    (one,) = launch(tmp_path, 1, 3, method=method, **FROZEN)
    first, second = launch(tmp_path, 2, 3, method=method, **FROZEN)
    for step in range(3):
        torch.testing.assert_close(first[f"loss.{step}"], one[f"loss.{step}"], atol=1e-5, rtol=1e-5)
        assert torch.equal(first[f"loss.{step}"], second[f"loss.{step}"])
    for name, value in one.items():
        torch.testing.assert_close(
            first[name], value, atol=1e-4, rtol=1e-4, msg=lambda text, n=name: f"{n}: {text}"
        )


def test_banks_and_weights_are_identical_on_both_processes_with_shuffled_batchnorm(tmp_path):
    first, second = launch(tmp_path, 2, 4, epochs=1)
    for name in first:
        if name.startswith(("bank.", "query.")) and "running_" not in name and "num_batches" not in name:
            assert torch.equal(first[name], second[name]), name
    index = first["bank._index"]
    assert len(set(index[index >= 0].tolist())) > 30  # rows of both processes, not one share twice
    results = json.loads((tmp_path / "run-2" / "result.json").read_text())
    assert results["processes"] == 2


def test_a_device_that_is_not_here_is_refused():
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    with pytest.raises(UsageError, match="--device cpu"):
        start(device="cuda", devices=1, precision="32-true")

"""The memory bank of a finished run, and clear errors where it cannot be had."""

from __future__ import annotations

import shutil

import pytest

import maskcon
from maskcon._utils.errors import UsageError
from maskcon.api import Run
from maskcon.config.settings import Machine
from maskcon.paper.relations import bank_of_run
from tests.miniature import TINY, miniature


def train(folder, method: str) -> Run:
    machine = Machine(device="cpu")
    return maskcon.fit(
        miniature(), method=method, out=folder, settings={**TINY, "epochs": 1}, machine=machine
    )


def test_a_run_without_keys_or_checkpoints_is_refused(tmp_path):
    with pytest.raises(UsageError, match="supce, which has no keys"):
        bank_of_run(train(tmp_path / "supce", "supce"))
    run = train(tmp_path / "maskcon", "maskcon")
    assert len(bank_of_run(run)) == TINY["bank_size"]
    for state in (run.folder / "checkpoints").glob("*/state.safetensors"):
        content = bytearray(state.read_bytes())
        content[-1] ^= 1
        state.write_bytes(content)
    with pytest.raises(UsageError, match="does not match its checksum"):
        bank_of_run(run)
    shutil.rmtree(run.folder / "checkpoints")
    with pytest.raises(UsageError, match=r"no whole checkpoint.*train it again"):
        bank_of_run(run)

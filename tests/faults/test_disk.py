"""The failing disk itself, and a checkpoint saved on it, in this process: seconds, so that every `make test` has it."""

from __future__ import annotations

import errno
import os

import pytest
import torch

from maskcon._utils.errors import MaskconError
from maskcon.training.checkpoint import load_latest, save_checkpoint
from tests.faults.disk import Disk, Fault
from tests.faults.sweep import faults_of


def save(root, step: int) -> None:
    save_checkpoint(root, step, {"a": torch.full((3, 4), float(step))}, {}, keep=1)


def test_every_fault_of_a_save_leaves_the_checkpoint_before_or_the_new_one(tmp_path):
    with Disk(tmp_path) as undisturbed:
        save(tmp_path / "0", 1)
        begun = len(undisturbed.operations)
        save(tmp_path / "0", 2)
    kinds = [operation.kind for operation in undisturbed.operations[begun:]]
    faults = [f for n, kind in enumerate(kinds, start=1) for f in faults_of(kind, n) if f.how != "kill"]
    refused = 0
    for place, fault in enumerate(faults, start=1):
        root = tmp_path / str(place)
        save(root, 1)
        try:
            with Disk(tmp_path, fault):
                save(root, 2)
            least = 2
        except MaskconError as error:
            least, refused = 1, refused + ("\n" not in str(error))
        found, notes = load_latest(root)
        assert found is not None
        assert notes == []
        assert found.values["step"] >= least, fault
        assert bool((found.tensors["a"] == found.values["step"]).all())
    assert refused > len(faults) / 2 > 40


@pytest.mark.parametrize("how", ["torn", "ENOSPC", "full"])
def test_what_is_written_to_a_full_disk_fails_where_it_should(tmp_path, how):
    with Disk(tmp_path, Fault(2, how)) as disk, (tmp_path / "file").open("wb", buffering=0) as file:
        with pytest.raises(OSError) as error:
            file.write(b"0123456789")
        assert error.value.errno == errno.ENOSPC
        if how == "full":
            with pytest.raises(OSError):
                file.write(b"again")
            assert (tmp_path / "file").read_bytes() == b""
    assert [operation.kind for operation in disk.operations[:2]] == ["create", "write"]
    assert (tmp_path / "file").read_bytes() == (b"01234" if how == "torn" else b"")


def test_short_reads_and_writes_are_completed_by_buffers(tmp_path):
    for at in range(1, 5):
        with Disk(tmp_path, Fault(at, "short")):
            (tmp_path / "file").write_bytes(b"0123456789" * 1000)
            assert (tmp_path / "file").read_bytes() == b"0123456789" * 1000


def test_nothing_is_counted_elsewhere_and_all_is_put_back(tmp_path):
    (inside := tmp_path / "inside").mkdir()
    before = os.open, open, os.rename
    with Disk(inside, Fault(1, "dead")) as disk:
        (tmp_path / "outside").write_bytes(b"1")
        assert disk.operations == []
        with pytest.raises(OSError):
            list(inside.iterdir())
    assert before == (os.open, open, os.rename)

"""How many threads a run has when none are given."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
import torch

from maskcon.config.settings import Machine
from maskcon.training import distributed as run_threads
from maskcon.training.distributed import with_threads
from maskcon.training.run_folder import ENVIRONMENT, RESULT
from tests.training.runs import Stopping, Told, fit

CPU = Machine(device="cpu")


@pytest.fixture
def free(monkeypatch):
    """Sets how many cores are free, on a machine where torch has four threads."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    torch.set_num_threads(4)
    yield lambda count: monkeypatch.setattr(run_threads, "free_cores", lambda: count)
    torch.set_num_threads(1)


def chosen(machine, folder) -> tuple[int | None, list[str]]:
    messages: list[str] = []
    return with_threads(machine, folder, messages.append).threads, messages


def test_a_new_run_has_as_many_as_cores_are_free_and_says_so_where_some_are_not(tmp_path, free):
    free(4)
    assert chosen(CPU, tmp_path) == (4, [])
    free(3)
    threads, messages = chosen(CPU, tmp_path)
    assert threads == 3
    assert "training with 3 threads of 4" in messages[0]


def test_never_more_than_torch_has(tmp_path, free):
    free(64)
    assert chosen(CPU, tmp_path) == (4, [])


def test_what_is_given_stays(tmp_path, free, monkeypatch):
    free(1)
    assert chosen(Machine(device="cpu", threads=2), tmp_path) == (2, [])
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert chosen(CPU, tmp_path) == (4, [])


def test_nothing_is_chosen_for_a_gpu_for_several_processes_or_for_a_finished_run(tmp_path, free, monkeypatch):
    free(1)
    assert chosen(Machine(device="cpu", devices=2), tmp_path) == (None, [])
    with monkeypatch.context() as patched:
        patched.setattr(run_threads, "usable_device", lambda _: "cuda")
        assert chosen(Machine(), tmp_path) == (None, [])
    (tmp_path / RESULT).touch()
    assert chosen(CPU, tmp_path) == (None, [])


@pytest.mark.parametrize("content", ["{}", '{"threads": "many"}', '{"threads": null}', '{"threads": -1}'])
def test_a_record_without_a_number_counts_as_none(tmp_path, free, content):
    free(4)
    (tmp_path / ENVIRONMENT).write_text(content)
    assert chosen(CPU, tmp_path) == (4, [])


class StoppingTold(Stopping, Told):
    """Stops a run after its first evaluation and keeps what was said until then."""


def test_a_run_goes_on_with_the_threads_that_it_was_begun_with_unless_told(tmp_path, free):
    def threads_of(callback, **given) -> int:
        with suppress(KeyboardInterrupt):
            fit(
                tmp_path,
                machine=Machine(device="cpu", checkpoint_every_seconds=0, **given),
                callback=callback,
            )
        return int(json.loads((tmp_path / ENVIRONMENT).read_text())["threads"])

    free(2)
    assert threads_of(StoppingTold()) == 2
    assert torch.get_num_threads() == 4  # those of the caller
    free(1)
    told = StoppingTold()
    assert threads_of(told) == 2
    assert (
        "resuming with 2 threads as before, for identical results; a new run would use 1 now" in told.messages
    )
    told = Told()
    assert threads_of(told, threads=3) == 3
    assert (
        "started with threads=2, resumed with threads=3: from here on, results may differ by rounding "
        "from those of an uninterrupted run" in told.messages
    )
    result = json.loads((tmp_path / RESULT).read_text())
    assert [change["threads"] for change in result["changes"]] == [[2, 3]]

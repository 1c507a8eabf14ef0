from __future__ import annotations

import subprocess
import sys

import pytest

import maskcon.training.journal
from maskcon._utils.errors import MaskconError, UsageError
from maskcon.training.comparison import Job, run_jobs
from maskcon.training.journal import Journal, read_ends


class Scripted(Job):
    """A job that runs a line of Python instead of a training."""

    def start(self, threads):
        self.log = self.log_path.open("wb")
        command = [sys.executable, "-c", self.arguments[0]]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT)


def silent(jobs) -> None:
    pass


@pytest.mark.parametrize(("code", "kind"), [(1, MaskconError), (2, UsageError)])
def test_a_failing_run_ends_the_others_and_says_why(tmp_path, code, kind):
    sleeper = Scripted("sleeper", tmp_path / "a", ["import time; time.sleep(100)"])
    failing = Scripted("failing", tmp_path / "b", [f"print('maskcon: because'); raise SystemExit({code})"])
    never = Scripted("never", tmp_path / "c", ["raise SystemExit(1)"])
    with pytest.raises(kind, match=r"failing failed.*: because") as caught:
        run_jobs([sleeper, failing, never], at_once=2, threads=1, watch=silent)
    assert caught.value.exit_code == code
    assert sleeper.process.returncode is not None
    assert never.process is None


def test_a_run_that_ends_well_without_a_result_is_a_failure(tmp_path):
    with pytest.raises(MaskconError, match=r"empty failed \(exit code 0\): no output"):
        run_jobs([Scripted("empty", tmp_path / "a", ["pass"])], at_once=1, threads=1, watch=silent)


def test_others_go_on_beside_a_run_that_may_fail_but_not_beside_one_that_was_refused(tmp_path):
    def scripted(name, code):
        return Scripted(name, tmp_path / name, [f"print('maskcon: too fast'); raise SystemExit({code})"])

    first, second = scripted("a", 1), scripted("b", 1)
    run_jobs(
        [first, second], at_once=1, threads=1, watch=silent, may_fail=lambda job: job.reason() == "too fast"
    )
    assert second.process.returncode == 1
    for job, may in ((scripted("c", 1), False), (scripted("d", 2), True)):
        with pytest.raises(MaskconError, match="too fast"):
            run_jobs([job], at_once=1, threads=1, watch=silent, may_fail=lambda job, may=may: may)


def test_each_run_has_its_own_log_whatever_its_name(tmp_path):
    names = ("tau0.05", "tau0.1", "tau0")
    assert len({Job(name, tmp_path / name, []).log_path for name in names}) == 3


def test_progress_is_read_off_a_long_journal_without_reading_all_of_it(tmp_path, monkeypatch):
    job = Job("long", tmp_path, [])
    job.update()
    assert job.share == 0  # no journal yet
    with Journal(tmp_path / "journal.jsonl") as journal:
        journal.write("start", step=0, total_steps=4000)
        for step in range(1, 1001):
            journal.write("step" if step != 500 else "damage", step=step, loss=6.5)
        journal.write("evaluation", step=1000, recall={"1": 0.5})
    path = tmp_path / "journal.jsonl"
    path.write_bytes(path.read_bytes().replace(b'{"kind": "damage"', b"never read"))
    monkeypatch.setattr(maskcon.training.journal, "TAIL_BYTES", 300)
    job.update()
    assert job.share == 0.25
    assert len(read_ends(path)) < 10
    with path.open("ab") as file:
        file.write(b'{"kind": "step", "step": 2')  # being written, or torn by a kill
    job.update()
    assert job.share == 0.25
    with path.open("ab") as file:
        file.write(b'\n{"kind": "step", "step": 4000, "loss": 6.5}\n')
    job.update()
    assert 0.9 < job.share < 1  # its last step is taken, its scores are not there


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="choose another --out"):
        run_jobs([Job("a", tmp_path / "file" / "all" / "a", [])], at_once=1, threads=1, watch=silent)

"""Run several trainings, each in its own process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from maskcon._utils.errors import MaskconError, UsageError
from maskcon.training.journal import read_ends
from maskcon.training.run_folder import JOURNAL, RESULT
from maskcon.training.signals import Interrupted, StopRequest

POLL_SECONDS = 0.5
MOST_RUNNING = 0.99  # share of a run that still scores its embedding


@dataclass
class Job:
    """One `maskcon train`, and its progress."""

    label: str
    folder: Path
    arguments: Sequence[str]  # of `maskcon train`, without --out
    share: float = 0.0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    log: IO[bytes] | None = field(default=None, repr=False)

    @property
    def finished(self) -> bool:
        return (self.folder / RESULT).is_file()

    @property
    def log_path(self) -> Path:
        """Path of the output, beside the folder."""
        return self.folder.with_name(f"{self.folder.name}.log")  # with_suffix would cut grafit-w0.5-seed0

    def start(self, threads: int | None) -> None:
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            self.log = self.log_path.open("wb")
        except OSError as error:
            raise UsageError(
                f"cannot write to {self.folder.parent}: {error.strerror}; choose another --out"
            ) from None
        command = [sys.executable, "-m", "maskcon", "train", *self.arguments, "--out", str(self.folder)]
        command += ["--stop-with-parent"]  # noticed by the end of standard input
        environment = dict(os.environ)
        if threads is not None:
            command += ["--threads", str(threads)]
            environment["OMP_NUM_THREADS"] = str(threads)
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=self.log, stderr=subprocess.STDOUT, env=environment
        )

    def update(self) -> None:
        """Update `share` from the journal the process writes."""
        if self.finished:
            self.share = 1.0
            return
        events = read_ends(self.folder / JOURNAL)  # several times a second, of every run
        total = next((event.get("total_steps") for event in events if event.get("kind") == "start"), None)
        steps = [event["step"] for event in events if event.get("kind") == "step"]
        if total and steps:
            self.share = min(MOST_RUNNING, steps[-1] / total)

    def close(self) -> None:
        """Close the files of a process that has ended; closing twice is harmless."""
        for file in (self.log, None if self.process is None else self.process.stdin):
            if file is not None:
                file.close()

    def reason(self) -> str:
        """Return the last line of output: why the process failed."""
        text = self.log_path.read_text(encoding="utf-8", errors="replace").strip()
        return text.splitlines()[-1].removeprefix("maskcon: ") if text else "no output"


def run_jobs(
    jobs: Sequence[Job],
    *,
    at_once: int,
    threads: int | None,
    watch: Callable[[Sequence[Job]], None],
    may_fail: Callable[[Job], bool] = lambda job: False,  # noqa: ARG005
) -> None:
    """Run all jobs, `at_once` at a time.

    A failure or a request to stop ends all of them; they can be resumed. Finished ones are started too: only
    `maskcon train` knows whether a folder holds the requested run.

    Args:
        may_fail: called with a run that failed; True lets the others continue.
    """
    waiting = list(jobs)
    active: list[Job] = []
    with StopRequest() as stop:
        try:
            while waiting or active:
                while waiting and len(active) < at_once:
                    job = waiting.pop(0)
                    job.start(threads)
                    active.append(job)
                time.sleep(POLL_SECONDS)
                for job in jobs:
                    job.update()
                watch(jobs)
                if stop.signal_number is not None:
                    raise Interrupted(
                        "stopped, every run saved; rerun the same command to resume", stop.signal_number
                    )
                active = [job for job in active if not _ended(job, may_fail)]
        finally:
            _stop(active)


def _ended(job: Job, may_fail: Callable[[Job], bool]) -> bool:
    assert job.process is not None  # only started jobs are active
    code = job.process.poll()
    if code is None:
        return False
    job.close()
    if code == UsageError.exit_code:  # rerunning the command would be refused again
        raise UsageError(f"{job.label} failed: {job.reason()}")
    if code != 0 and may_fail(job):
        job.share = 1.0
        return True
    if code != 0 or not job.finished:
        raise MaskconError(
            f"{job.label} failed (exit code {code}): {job.reason()}. Its whole output is in {job.log_path}; "
            "rerun the same command to resume"
        )
    job.share = 1.0
    return True


def _stop(jobs: Sequence[Job]) -> None:
    """Ask the processes to save and stop, and wait for them."""
    for job in jobs:
        if job.process is not None and job.process.poll() is None:
            job.process.terminate()
    for job in jobs:
        if job.process is not None:
            try:
                job.process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                job.process.kill()
                job.process.wait()
        job.close()

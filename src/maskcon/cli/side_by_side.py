"""Several runs at once: how many, with how many threads, and one progress bar for all."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from maskcon.training.comparison import Job


def sharing(jobs: int | None, device: str, runs: int) -> tuple[int, int]:
    """Return runs at once and threads per run: small networks train best on one core each."""
    from maskcon.training.distributed import usable_device

    cores = os.cpu_count() or 1
    at_once = max(1, min(runs, jobs or (cores if usable_device(device) == "cpu" else 1)))
    return at_once, max(1, cores // at_once)


class Bars:
    """A progress bar for all runs together, or a line at each tenth without a terminal."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        self.jobs = jobs
        self.console = Console(stderr=True, highlight=False)
        self._told = -1
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn(),
            TextColumn("left"), console=self.console, disable=not self.console.is_terminal,
        )  # fmt: skip
        self._task = self._bar.add_task("starting", total=float(len(jobs)))

    def __enter__(self) -> Bars:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, jobs: Sequence[Job]) -> None:
        done = sum(job.share for job in jobs)
        active = [job.label for job in jobs if job.process is not None and job.process.poll() is None]
        text = f"{sum(job.finished for job in jobs)} of {len(jobs)} runs done; now {', '.join(active) or '-'}"
        self._bar.update(self._task, completed=done, description=text)
        tenth = int(10 * done / len(jobs))
        if not self.console.is_terminal and tenth > self._told:
            self._told = tenth
            self.console.print(f"{10 * tenth} %: {text}")

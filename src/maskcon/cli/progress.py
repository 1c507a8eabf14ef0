"""Progress on stderr: bars in a terminal, else one line per tenth, for log files."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from maskcon.training.comparison import Job


class LossyStream:
    """A text stream that drops text instead of raising: no closed pipe, lost terminal or full disk stops a run."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._try(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._try(self._stream.flush)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _try(self, work: Callable[[], object]) -> None:
        try:
            work()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError), Path(os.devnull).open("wb") as nowhere:
                # also drops Python's buffer, which would fail again when flushed at exit
                os.dup2(nowhere.fileno(), self._stream.fileno())


def stderr_console() -> Console:
    """Return a console for progress and messages on standard error; text that cannot be written is dropped."""
    return Console(file=cast(TextIO, LossyStream(sys.stderr)), highlight=False)


LINES_AFTER = 2.0  # seconds before the progress of an activity gets lines in a log


class Meter:
    """Shows progress and rate of one activity."""

    def __init__(self, what: str, unit: str, divisor: float = 1.0, console: Console | None = None) -> None:
        self.what, self.unit, self.divisor = what, unit, divisor
        self._first: tuple[float, float] | None = None  # time and progress at the first call
        self._tenth = 0
        self._console = console or stderr_console()
        self._bar = Progress(
            TextColumn(self.what), BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn(),
            console=self._console, disable=not self._console.is_terminal, transient=True,
        )  # fmt: skip

    def __enter__(self) -> Meter:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def show(self, done: float, total: float | None, more: str = "") -> None:
        """Show progress.

        Args:
            total: None while unknown.
            more: text after the numbers.
        """
        now = time.monotonic()
        if self._first is None:
            self._first = now, done
            self._task = self._bar.add_task("", total=total)
            self._bar.start()
        seconds, news = now - self._first[0], (done - self._first[1]) / self.divisor
        rate = news / seconds if seconds > 0 else 0.0
        of = "" if total is None else f" of {total / self.divisor:,.0f}"
        text = f"{int(done / self.divisor):,}{of} {self.unit}"
        text += (f", {rate:,.0f} {self.unit}/s" if rate >= 1 else "") + more
        self._bar.update(self._task, completed=done, total=total, description=text)
        tenth = 0 if total is None else int(10 * done // max(total, 1))
        if not self._console.is_terminal and tenth > self._tenth and seconds >= LINES_AFTER:
            self._tenth = tenth
            self._console.print(f"{self.what}: {text}", markup=False, soft_wrap=True)
        if total is not None and done >= total:
            self.stop()  # only one bar can run at a time

    def stop(self) -> None:
        self._bar.stop()


def show_runs(meter: Meter, jobs: Sequence[Job]) -> None:
    """Show the progress of several runs together."""
    active = [job.label for job in jobs if job.process is not None and job.process.poll() is None]
    meter.show(sum(job.share for job in jobs), len(jobs), f"; now {', '.join(active) or '-'}")

"""Terminal: the callback of the command line, with a progress bar and messages."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from maskcon._utils.text import counted
from maskcon.training.callbacks import Callback
from maskcon.training.text_progress import begin_line, embedding_line

if TYPE_CHECKING:
    from maskcon.config.settings import RunConfig
    from maskcon.data import Dataset


class Terminal(Callback):
    """Shows a run on stderr; prints lines without a bar where stderr is no terminal."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False)
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._reading: Progress | None = None
        self._start = 0
        self._images = 0
        self._first_seconds: float | None = None

    def on_choice(self, line: str) -> None:
        self._say(f"chosen  {line}")

    def on_load(self, done: int, total: int) -> None:
        self._count_images("reading images", done, total)

    def on_hog(self, done: int, total: int) -> None:
        self._count_images("computing HOG features", done, total)

    def _count_images(self, what: str, done: int, total: int) -> None:
        if self._reading is None:
            self._reading = Progress(
                TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
                console=self.console, transient=True, disable=not self.console.is_terminal,
            )  # fmt: skip
            self._reading.add_task("", total=total)
            self._reading.start()
        self._reading.update(TaskID(0), completed=done, total=total)
        if done >= total:
            self._reading.stop()
            self._reading = None

    def on_extract(self, done: int, total: int, views_per_second: float) -> None:
        if self._reading is None:
            if not self.console.is_terminal:
                self._say(embedding_line(total - done))
            self._reading = Progress(
                TextColumn("embedding once"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"),
                TimeRemainingColumn(), TextColumn("left"),
                console=self.console, transient=True, disable=not self.console.is_terminal,
            )  # fmt: skip
            self._reading.add_task("", total=total, completed=done)
            self._reading.start()
        speed = f"{views_per_second:,.0f} views/s" if views_per_second > 0 else ""
        self._reading.update(TaskID(0), completed=done, total=total, description=speed)
        if done >= total:
            self._reading.stop()
            self._reading = None

    def on_begin(self, config: RunConfig, data: Dataset, done: int, total: int) -> None:
        self._say(begin_line(config, data))
        self._start, self._images, self._first_seconds = done, 0, None
        if self.console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
                TextColumn("{task.fields[speed]}"), TimeRemainingColumn(), TextColumn("left"),
                console=self.console,
            )  # fmt: skip
            self._task = self._bar.add_task("training", total=total, completed=done, speed="")
            self._bar.start()

    def on_step(self, done: int, total: int, images: int, loss: float, seconds: float) -> None:  # noqa: ARG002
        if self._first_seconds is None:
            self._first_seconds = seconds  # the first step warms caches up; speed is counted after it
        else:
            self._images += images
        if self._bar is None:
            return
        elapsed = seconds - self._first_seconds
        speed = f"{self._images / elapsed:,.0f} images/s" if elapsed > 0 else ""
        self._bar.update(self._task, completed=done, speed=speed)
        if math.isfinite(loss):
            self._bar.update(self._task, description=f"loss {loss:.3f}")

    def on_evaluation(self, values: Mapping[str, Any]) -> None:
        shares = "  ".join(f"R@{k} {100 * share:.2f}" for k, share in values["recall"].items())
        self._say(f"epoch {values['epoch']:>3}  {shares}  ({values['seconds']:.0f} s)")

    def on_message(self, text: str) -> None:
        self._say(text, style="yellow")

    def _say(self, text: str, style: str | None = None) -> None:
        # Names may hold square brackets, which are no markup, and a line stays a line where no terminal wraps it.
        self.console.print(text, style=style, markup=False, soft_wrap=True)

    def on_end(self) -> None:
        for bar in (self._bar, self._reading):  # one left alone would keep the cursor hidden
            if bar is not None:
                bar.stop()
        self._bar = self._reading = None


def print_result(result: Mapping[str, Any], folder: Path) -> None:
    """Recall beside the raw-pixel floor."""
    console = Console(highlight=False)
    ks = list(result["recall"])
    table = Table("recall (%)", *(f"R@{k}" for k in ks), box=None, pad_edge=False)
    floor = result["raw_pixels"]
    table.add_row("raw pixels", *(f"{100 * floor[k]:.2f}" for k in ks))
    alone = result.get("frozen_backbone")
    if alone is not None:
        table.add_row("backbone alone", *(f"{100 * alone[k]:.2f}" for k in ks))
    table.add_row(result["method"], *(f"{100 * result['recall'][k]:.2f}" for k in ks), style="bold")
    console.print(table)
    kind = "" if result["scored_by"] == "fine" else " (no fine labels here: scored by coarse label)"
    scored = f"{counted(result['test_images'], 'image')} scored{kind}"
    told = f"{scored}; {result['seconds']:.0f} s of training; run in {folder}"
    console.print(told, markup=False, soft_wrap=True)

"""What a person sees while a run goes on: a progress bar with speed and time left, and lines that matter."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from maskcon.encoder import has_own_shape
from maskcon.methods import method_named
from maskcon.observer import Announcer

if TYPE_CHECKING:
    from maskcon.config import RunConfig
    from maskcon.sources import Dataset


class Terminal(Announcer):
    """Announces a run on stderr; without a terminal it prints lines only, no bar."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False)
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._reading: Progress | None = None
        self._start = 0
        self._images = 0
        self._first_seconds: float | None = None

    def loading(self, done: int, total: int) -> None:
        """Images read so far, for sources that take a while."""
        if self._reading is None:
            self._reading = Progress(
                TextColumn("reading images"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
                console=self.console, transient=True, disable=not self.console.is_terminal,
            )  # fmt: skip
            self._reading.add_task("", total=total)
            self._reading.start()
        self._reading.update(TaskID(0), completed=done, total=total)
        if done >= total:
            self._reading.stop()
            self._reading = None

    def begin(self, config: RunConfig, data: Dataset, done: int, total: int) -> None:
        method = method_named(config.method)
        values = f"w={config.w:g} " if method.uses_w else ""
        values += f"tau={config.tau:g} " if method.uses_tau else ""
        epochs = f"{config.epochs} epoch{'' if config.epochs == 1 else 's'}"
        self._say(
            f"{method.title} {values}on {data.name}: {len(data.train)} images, "
            f"{len(data.coarse_names)} coarse classes, {config.image_size} px; {_encoder(config)}, "
            f"{epochs}, preset {config.preset}, seed {config.seed}"
        )
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

    def end(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _encoder(config: RunConfig) -> str:
    return config.backbone if has_own_shape(config.backbone) else f"{config.backbone} of width {config.width}"


def print_result(result: Mapping[str, Any], folder: Path) -> None:
    """Recall beside the raw-pixel floor."""
    console = Console(highlight=False)
    ks = list(result["recall"])
    table = Table("recall (%)", *(f"R@{k}" for k in ks), box=None, pad_edge=False)
    floor = result["raw_pixels"]
    table.add_row("raw pixels", *(f"{100 * floor[k]:.2f}" for k in ks))
    table.add_row(result["method"], *(f"{100 * result['recall'][k]:.2f}" for k in ks), style="bold")
    console.print(table)
    kind = "" if result["scored_by"] == "fine" else " (no fine labels here: scored by coarse label)"
    told = (
        f"{result['test_images']} images scored{kind}; {result['seconds']:.0f} s of training; run in {folder}"
    )
    console.print(told, markup=False, soft_wrap=True)

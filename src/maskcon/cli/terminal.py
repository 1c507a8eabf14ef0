"""Terminal: the callback of the command line, with a progress bar and messages."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from maskcon._utils.text import counted, printable
from maskcon.cli.progress import Meter, stderr_console
from maskcon.training.callbacks import Callback, begin_line

if TYPE_CHECKING:
    from maskcon.config.settings import RunConfig
    from maskcon.data import Dataset


class Terminal(Callback):
    """Show a run on stderr: a progress bar in a terminal, else lines."""

    def __init__(self) -> None:
        self.console = stderr_console()
        self._meter: Meter | None = None
        self._batch = 1
        self._loss = ""

    def on_choice(self, line: str) -> None:
        self._say(f"chosen  {line}")

    def on_load(self, done: int, total: int) -> None:
        self._count("reading", "images", done, total)

    def on_hog(self, done: int, total: int) -> None:
        self._count("computing HOG features", "images", done, total)

    def on_extract(self, done: int, total: int, views_per_second: float) -> None:  # noqa: ARG002
        self._count("embedding once", "views", done, total)

    def _count(self, what: str, unit: str, done: int, total: int, more: str = "") -> None:
        if self._meter is None:
            self._meter = Meter(what, unit, console=self.console)
        self._meter.show(done, total, more)
        if done >= total:
            self._meter = None

    def on_begin(self, config: RunConfig, data: Dataset, done: int, total: int) -> None:  # noqa: ARG002
        self._batch = config.batch_size
        self._say(begin_line(config, data))

    def on_step(self, done: int, total: int, images: int, loss: float, seconds: float) -> None:  # noqa: ARG002
        if math.isfinite(loss):
            self._loss = f", loss {loss:.3f}"
        self._count("training", "images", done * self._batch, total * self._batch, self._loss)

    def on_evaluation(self, values: Mapping[str, Any]) -> None:
        shares = "  ".join(f"R@{k} {100 * share:.2f}" for k, share in values["recall"].items())
        self._say(f"epoch {values['epoch']:>3}  {shares}  ({values['seconds']:.0f} s)")

    def on_message(self, text: str) -> None:
        self._say(text, style="yellow")

    def _say(self, text: str, style: str | None = None) -> None:
        # markup=False: names may hold square brackets; soft_wrap: lines of a log file are not wrapped
        self.console.print(printable(text), style=style, markup=False, soft_wrap=True)

    def on_end(self) -> None:
        if self._meter is not None:
            self._meter.stop()  # a running bar keeps the cursor hidden
        self._meter = None


def print_result(result: Mapping[str, Any], folder: Path) -> None:
    """Print the recall of a run and of raw pixels."""
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
    line = f"{scored}; {result['seconds']:.0f} s of training; run in {folder}"
    console.print(printable(line), markup=False, soft_wrap=True)

"""`maskcon pack`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from maskcon.cli import options


def pack(
    source: options.Source,
    image_size: Annotated[
        int | None,
        typer.Option(
            help="Side of a view in pixels, by default 224. Training must have the same image_size: "
            "`maskcon train SOURCE --dry-run` shows it, `--set image_size=224` changes it."
        ),
    ] = None,
    data_root: options.DataRoot = None,
    download: options.Download = False,
    strict: options.Strict = False,
) -> None:
    """Decode images once into a memory-mapped array, so that training reads them without decoding.

    Training finds the pack by itself, as long as the files and the image size stay the same. For ImageNet32 the
    batch files are converted instead.

    Example: `maskcon pack cars196 --image-size 224`
    """
    from maskcon._utils.text import counted
    from maskcon.data import prepare, takes_image_size
    from maskcon.data.decoding import canvas_for

    unit = "images" if takes_image_size(source) else "batch files"
    with (
        Meter("fetching", "MB", 1e6) as fetching,
        Meter("looking at", "images") as looking,
        Meter("decoding", unit) as decoding,
    ):
        prepared = prepare(
            source,
            root=None if data_root is None else Path(data_root),
            image_size=None if image_size is None else canvas_for(image_size),
            download=download,
            strict=strict,
            fetching=fetching.show,
            looking=looking.show,
            decoding=decoding.show,
        )
    if prepared.data is None or prepared.place is None:
        typer.echo(f"{source} is read as arrays of small images; there is nothing to pack")
        return
    data = prepared.data
    count, side = len(data.train) + len(data.test), max(data.train.images.shape[2:])
    pictures = f"{counted(count, 'image')} at {side} px"
    if prepared.was_there:
        typer.echo(f"{source} is packed already: {pictures}")
    else:
        rate = count / max(prepared.seconds, 1e-9)
        typer.echo(f"{source} is packed: {pictures} in {prepared.seconds:.1f} s, {rate:,.0f} images/s")
    typer.echo(
        f"{prepared.place}: {_spoken_size(prepared.size_bytes)}, {counted(prepared.left_out, 'image')} left out"
    )
    for note in data.notes:
        typer.echo(f"note: {note}")


def _spoken_size(size: int) -> str:
    """
    >>> _spoken_size(3_182_100_000), _spoken_size(5_400_000)
    ('3.2 GB', '5.4 MB')
    """
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"


class Meter:
    """Progress and rate on stderr: a bar, or without a terminal one line per tenth."""

    def __init__(self, what: str, unit: str, divisor: float = 1.0) -> None:
        self.what, self.unit, self.divisor = what, unit, divisor
        self._first: tuple[float, int] | None = None  # time, and what was done by then
        self._told = 0

    def __enter__(self) -> Meter:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._console = Console(stderr=True, highlight=False)
        self._bar = Progress(
            TextColumn(self.what), BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn(),
            console=self._console, disable=not self._console.is_terminal, transient=True,
        )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, done: int, total: int | None) -> None:
        """total is None while it is not known."""
        now = time.monotonic()
        if self._first is None:
            self._first = now, done
            self._task = self._bar.add_task("", total=total)
            self._bar.start()
        seconds, news = now - self._first[0], (done - self._first[1]) / self.divisor
        rate = f", {news / seconds:,.0f} {self.unit}/s" if news > 0 and seconds > 0 else ""
        of = "" if total is None else f" of {total / self.divisor:,.0f}"
        text = f"{done / self.divisor:,.0f}{of} {self.unit}{rate}"
        self._bar.update(self._task, completed=done, total=total, description=text)
        tenth = 0 if total is None else 10 * done // max(total, 1)
        if not self._console.is_terminal and tenth > self._told:
            self._told = tenth
            self._console.print(f"{self.what}: {text}")
        if total is not None and done >= total:
            self._bar.stop()  # one bar at a time: the next may be about to start

"""`maskcon report`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from maskcon.cli import options


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders of finished runs.")],
    out: Annotated[
        Path | None, typer.Option(help="Where to write; by default into the first run's folder.")
    ] = None,
    data_root: options.DataRoot = None,
    download: options.Download = False,
) -> None:
    """Write a page about one run, or about several compared: table, curves, map, retrieval.

    Example: `maskcon report runs/embedded-maskcon-seed0`
    """
    from maskcon.summary import write_summary

    place = options.machine(data_root=data_root, download=download)
    elsewhere = [] if out is None else ["--out", str(out)]
    command = shlex.join(["maskcon", "report", *map(str, runs), *elsewhere])
    page = write_summary(runs, out or runs[0], machine=place, command=command)
    typer.echo(f"report: {page}")

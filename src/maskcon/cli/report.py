"""`maskcon report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from maskcon._utils.errors import UsageError
from maskcon.cli import options
from maskcon.cli.printing import echo


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders of finished runs.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Folder for report.html, its figures and tables; by default the folder of the first run.",
        ),
    ] = None,
    images: Annotated[
        int | None,
        typer.Option(
            min=2, help="Most test images on the map; by default 5000 for one run, fewer for several."
        ),
    ] = None,
    data_root: options.DataRoot = None,
    download: options.Download = False,
    device: options.Device = "auto",
) -> None:
    """Write a page about one run or several: table, curves, map, neighbours.

    One HTML file that needs nothing else: send it, or open it in any browser.

    Example: `maskcon report runs/embedded-teachcon-seed0`
    """
    from maskcon.cli.progress import Meter
    from maskcon.report.summary import write_summary

    if out is not None and out.suffix.lower() in (".html", ".htm") and not out.is_dir():
        raise UsageError(
            f"--out is a folder, in which report.html is written: try --out {out.with_suffix('')}"
        )
    place = options.machine(data_root=data_root, download=download, device=device)
    with Meter("reading", "images") as reading, Meter("embedding", "images") as embedding:
        page = write_summary(
            runs,
            out or runs[0],
            machine=place,
            images=images,
            message=lambda text: echo(text, err=True),
            reading=reading.show,
            embedding=embedding.show,
        )
    echo(f"report: {page}")

"""`maskcon datasets`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from maskcon.cli import options


def datasets(
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
    data_root: options.DataRoot = None,
) -> None:
    """List the data sets known by name: what they are, whether they are here, how to get them."""
    from maskcon.sources import catalogue
    from maskcon.sources import data_root as folder_of

    root = Path(data_root) if data_root is not None else None
    known = catalogue(root)
    if as_json:
        typer.echo(json.dumps([asdict(info) for info in known]))
        return
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table(
        "name", "train / test", "coarse / fine", "images", "here", "how to get it", box=None, pad_edge=False
    )
    for info in known:
        counts = f"{info.counts[0]:,} / {info.counts[1]:,}"
        classes = f"{info.classes[0]} / {info.classes[1]}"
        how = "" if info.available else info.how_to_get
        table.add_row(info.name, counts, classes, info.image, "yes" if info.available else "no", how)
    console.print(table)
    where = f"Data folder: {folder_of(root)}. A folder of pictures may be given instead of a name."
    console.print(where, markup=False, soft_wrap=True)  # a path may hold [brackets], and is copied whole

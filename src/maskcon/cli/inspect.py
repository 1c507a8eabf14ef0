"""`maskcon inspect`."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from maskcon.cli import options
from maskcon.cli.printing import echo
from maskcon.config.presets import DEFAULT_PRESET, default_method

PAGE = "inspection.html"


def inspect(
    source: options.Source,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Folder for the page; by default inspections/SOURCE, or no page with --json."
        ),
    ] = None,
    as_json: options.Json = False,
    method: Annotated[str, typer.Option(help="Method for which settings would be chosen.")] = default_method(
        DEFAULT_PRESET
    ),
    data_root: options.DataRoot = None,
    download: options.Download = False,
    device: options.Device = "auto",
) -> None:
    """Inspect images before training on them.

    Reports images per class, sizes and modes, duplicates and near-duplicates (also across train and test or under
    different labels), unreadable files with the reason, class imbalance, and what `maskcon train` would choose. Writes
    a page with some images per class; changes no image.

    Example: `maskcon inspect ./photos`
    """
    from maskcon._utils.files import write_atomically
    from maskcon.cli.progress import Meter
    from maskcon.report.inspection import WARNING, inspect_source, lines, page
    from maskcon.training.run_folder import check_place, make_writable, short_name

    place = options.machine(data_root=data_root, device=device, download=download)
    folder = out or Path("inspections") / _file_name(short_name(source))
    writes = out is not None or not as_json
    if writes:
        check_place(folder, source)
    with (
        Meter("fetching", "MB", 1e6) as fetching,
        Meter("looking at", "images") as looking,
        Meter("reading", "images") as reading,
    ):
        found, read = inspect_source(
            source,
            method=method.lower(),
            machine=place,
            progress=reading.show,
            fetching=fetching.show,
            looking=looking.show,
            message=partial(echo, err=True),
        )
    if as_json:
        echo(json.dumps(found.as_json()))
    else:
        for line in lines(found):
            echo(line, fg=typer.colors.RED if line.startswith(WARNING) else None)
    if writes:
        content = page(found, read).encode()
        make_writable(folder)
        write_atomically(folder / PAGE, content)
        echo(f"page: {folder / PAGE}", err=as_json)


def _file_name(name: str) -> str:
    """Turn the name of a dataset into the name of a folder.

    >>> _file_name("hf:someone/cats")
    'hf_someone_cats'
    """
    return "".join("_" if letter in "/\\\\:" else letter for letter in name) or "source"

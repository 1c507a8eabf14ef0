"""`maskcon pack`."""

from __future__ import annotations

import json
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
    as_json: options.Json = False,
) -> None:
    """Decode images once into a memory-mapped array, so that training reads them without decoding.

    Training finds the pack by itself, as long as the files and the image size stay the same.

    Example: `maskcon pack cars196 --image-size 224`
    """
    from maskcon._utils.text import counted
    from maskcon.cli.progress import Meter
    from maskcon.data import prepare
    from maskcon.data.decoding import canvas_for

    with (
        Meter("fetching", "MB", 1e6) as fetching,
        Meter("looking at", "images") as looking,
        Meter("decoding", "images") as decoding,
    ):
        prepared = prepare(
            source,
            decoding.show,
            root=None if data_root is None else Path(data_root),
            image_size=None if image_size is None else canvas_for(image_size),
            download=download,
            strict=strict,
            progress=fetching.show,
            looking=looking.show,
        )
    if prepared is None:
        typer.echo(
            json.dumps({"packed": False})
            if as_json
            else f"{source} is read as arrays of small images; there is nothing to pack"
        )
        return
    data = prepared.data
    count, side = len(data.train) + len(data.test), max(data.train.images.shape[2:])
    for note in data.notes:
        typer.echo(f"note: {note}", err=True)
    if as_json:
        record = {"packed": True, "file": str(prepared.place), "images": count, "side": side}
        record |= {
            "bytes": prepared.size_bytes,
            "left_out": prepared.left_out,
            "was_there": prepared.was_there,
        }
        typer.echo(json.dumps(record))
        return
    images = f"{counted(count, 'image')} at {side} px"
    if prepared.was_there:
        typer.echo(f"{source} is packed already: {images}")
    else:
        rate = count / max(prepared.seconds, 1e-9)
        typer.echo(f"{source} is packed: {images} in {prepared.seconds:.1f} s, {rate:,.0f} images/s")
    typer.echo(
        f"{prepared.place}: {_size(prepared.size_bytes)}, {counted(prepared.left_out, 'image')} left out"
    )


def _size(size: int) -> str:
    """Format a number of bytes.

    >>> _size(3_182_100_000), _size(5_400_000)
    ('3.2 GB', '5.4 MB')
    """
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"

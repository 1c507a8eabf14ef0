"""`maskcon embed`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from maskcon.cli import options

SHOWN_AT_MOST = 20  # files that could not be read, named one a line


def embed(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")],
    source: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE",
            help="A folder of pictures (class folders are not needed), a manifest (.csv, .parquet) with a column "
            "path, a data set by name or hf:NAME, pictures, or a .txt file with a path a line.",
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Parquet file to write or bring up to date.")
    ] = Path("embeddings.parquet"),
    data_root: options.DataRoot = None,
    download: options.Download = False,
    strict: options.Strict = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Overwrite embeddings of another run or source.")
    ] = False,
    device: options.Device = "auto",
) -> None:
    """Embed pictures with a run's encoder into a Parquet file: path, coarse label, vector.

    Stopped, the same command goes on; given again later, it embeds only what is new or changed.

    Example: `maskcon embed runs/photos-maskcon-seed0 ./new_photos -o new.parquet`
    """
    from maskcon._utils.text import counted
    from maskcon.api import Run
    from maskcon.cli.pack import Meter
    from maskcon.data.folder_layout import show
    from maskcon.retrieval.embeddings import write_embeddings

    place = options.machine(data_root=data_root, download=download)
    with Meter("reading", "pictures") as reading, Meter("embedding", "pictures") as embedding:
        outcome = write_embeddings(
            Run.open(run),
            source[0] if len(source) == 1 else source,
            out,
            machine=place,
            device=device,
            strict=strict,
            replace=replace,
            progress=embedding.show,
            reading=reading.show,
        )
    for note in outcome.notes:
        typer.echo(f"note: {show(note)}", err=True)
    for path, why in list(outcome.left_out.items())[:SHOWN_AT_MOST]:
        typer.echo(f"left out: {show(path)} ({show(why)})", err=True)
    if len(outcome.left_out) > SHOWN_AT_MOST:
        typer.echo(f"left out: {len(outcome.left_out) - SHOWN_AT_MOST} more", err=True)
    typer.echo(
        f"embeddings: {outcome.path}, {counted(outcome.count, 'picture')} x {outcome.facts.features} "
        f"({outcome.embedded:,} embedded in {outcome.seconds:.1f} s, {outcome.taken_over:,} taken over, "
        f"{len(outcome.left_out):,} left out)"
    )

"""`maskcon embed`."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from maskcon.cli import options
from maskcon.cli.printing import echo

if TYPE_CHECKING:
    from maskcon.retrieval.store import Refreshed

SHOWN_AT_MOST = 20  # unreadable files, one per line


def embed(
    run: options.Run,
    source: Annotated[list[str], options.IMAGES],
    out: Annotated[Path, typer.Option("--out", "-o", help="Parquet file to write or update.")] = Path(
        "embeddings.parquet"
    ),
    data_root: options.DataRoot = None,
    download: options.Download = False,
    strict: options.Strict = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Overwrite embeddings of another run or source.")
    ] = False,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Embed images with a run's encoder into a Parquet file.

    Its columns are path, coarse label and vector. Rerun the same command to resume, or later to embed only new and
    changed images.

    Example: `maskcon embed runs/photos-teachcon-seed0 ./new_photos -o new.parquet`
    """
    from maskcon._utils.text import counted
    from maskcon.api import Run
    from maskcon.api.embedding import write_embeddings
    from maskcon.cli.progress import Meter

    started = time.monotonic()
    with Meter("reading", "images") as reading, Meter("embedding", "images") as embedding:
        done, features = write_embeddings(
            Run.open(run),
            source[0] if len(source) == 1 else source,
            out,
            data_root=data_root,
            download=download,
            device=device,
            strict=strict,
            replace=replace,
            progress=embedding.show,
            reading=reading.show,
        )
    print_left_out(done)
    if as_json:
        record = {"file": str(out), "features": features, "images": done.total, "embedded": done.embedded}
        echo(json.dumps(record | {"reused": done.reused, "left_out": done.failures, "notes": done.notes}))
        return
    echo(
        f"embeddings: {out}, {counted(done.total, 'image')} x {features} "
        f"({done.embedded:,} embedded in {time.monotonic() - started:.1f} s, {done.reused:,} reused, "
        f"{len(done.failures):,} left out)"
    )


def print_left_out(done: Refreshed) -> None:
    """Print notes and unreadable images to stderr."""
    from maskcon.data.folder_layout import show

    for note in done.notes:
        echo(f"note: {show(note)}", err=True)
    print_unreadable(done.failures)


def print_unreadable(failures: Mapping[str, str]) -> None:
    """Print images that were left out, with the reasons, to stderr."""
    from maskcon.data.folder_layout import show

    for path, why in list(failures.items())[:SHOWN_AT_MOST]:
        echo(f"left out: {show(path)} ({show(why)})", err=True)
    if len(failures) > SHOWN_AT_MOST:
        echo(f"left out: {len(failures) - SHOWN_AT_MOST} more", err=True)

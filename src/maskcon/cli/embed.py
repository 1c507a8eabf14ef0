"""`maskcon embed`."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from maskcon.cli import options
from maskcon.cli.stores import gather_images, header_of, lock_folder, open_encoder

if TYPE_CHECKING:
    from maskcon.api import Run
    from maskcon.data.collection import Given
    from maskcon.data.image_readers import Images
    from maskcon.data.packing import Progress
    from maskcon.retrieval.store import Embed, Header, Refreshed

SHOWN_AT_MOST = 20  # unreadable files, one per line


def embed(
    run: options.Run,
    source: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE",
            help="A folder of images (class folders are not needed), a manifest (.csv, .parquet) with a column "
            "path, a dataset by name or hf:NAME, or images.",
        ),
    ],
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
    """Embed images with a run's encoder into a Parquet file: path, coarse label, vector.

    Rerun the same command to resume it, or later to embed only what is new or changed.

    Example: `maskcon embed runs/photos-maskcon-seed0 ./new_photos -o new.parquet`
    """
    from maskcon._utils.text import counted
    from maskcon.api import Run
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
        typer.echo(
            json.dumps(record | {"reused": done.reused, "left_out": done.failures, "notes": done.notes})
        )
        return
    typer.echo(
        f"embeddings: {out}, {counted(done.total, 'image')} x {features} "
        f"({done.embedded:,} embedded in {time.monotonic() - started:.1f} s, {done.reused:,} reused, "
        f"{len(done.failures):,} left out)"
    )


def print_left_out(done: Refreshed) -> None:
    """Print notes and unreadable images to stderr."""
    from maskcon.data.folder_layout import show

    for note in done.notes:
        typer.echo(f"note: {show(note)}", err=True)
    for path, why in list(done.failures.items())[:SHOWN_AT_MOST]:
        typer.echo(f"left out: {show(path)} ({show(why)})", err=True)
    if len(done.failures) > SHOWN_AT_MOST:
        typer.echo(f"left out: {len(done.failures) - SHOWN_AT_MOST} more", err=True)


def write_embeddings(
    run: Run,
    source: Given,
    out: str | Path,
    *,
    data_root: str | None = None,
    download: bool = False,
    device: str = "cpu",
    strict: bool = False,
    replace: bool = False,
    progress: Progress | None = None,
    reading: Progress | None = None,
) -> tuple[Refreshed, int]:
    """Write or update the embeddings file `out`; return what was done, and the length of the vectors.

    Args:
        source: see `maskcon.data.collection.gather`.
        replace: overwrite embeddings of another encoder or source. Files of other programs are never overwritten.
        progress, reading: called as f(images done, total) while embedding, and while a dataset is read as a whole.
    """
    from maskcon.retrieval.embeddings import check_target

    target = Path(out)
    check_target(target)
    encode, encoder, features = open_encoder(run, device)
    given = gather_images(
        run, encoder, source, data_root=data_root, download=download, strict=strict, progress=reading
    )
    header = header_of(run, encoder, given)
    done = update_embeddings(target, header, given, encode, strict=strict, replace=replace, progress=progress)
    return done, features


def update_embeddings(
    target: Path,
    header: Header,
    given: Images,
    encode: Embed,
    *,
    strict: bool = False,
    replace: bool = False,
    progress: Progress | None = None,
) -> Refreshed:
    """Make an embeddings file hold what these images are now; see `write_embeddings`."""
    from maskcon._utils.errors import DataError
    from maskcon.data.image_readers import none_readable
    from maskcon.retrieval.embeddings import EmbeddingsStore, parts_folder, remove_empty_parts
    from maskcon.retrieval.store import check_replaces, refresh

    if not given.paths:
        raise DataError(none_readable(given, given.unreadable))
    with ExitStack() as stack:
        lock_folder(parts_folder(target), stack)
        stack.callback(remove_empty_parts, target)
        store = EmbeddingsStore(target, header)
        check_replaces(store, str(target), replace)
        return refresh(store, given, encode, strict=strict, progress=progress)

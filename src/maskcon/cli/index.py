"""`maskcon index`."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from maskcon.cli import options
from maskcon.cli.stores import STORE_HELP, default_folder, default_name

if TYPE_CHECKING:
    from maskcon.data.packing import Progress
    from maskcon.retrieval.store import Refreshed, Store


def index(
    run: options.Run,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A folder of images (class folders are not needed), a manifest (.csv, .parquet) with a column "
            "path, or a dataset by name or hf:NAME.",
        ),
    ],
    out: Annotated[
        str | None,
        typer.Option(
            "--out", "-o", help="Folder of the index, by default `index` in the run's; with --store its name."
        ),
    ] = None,
    store: Annotated[str | None, typer.Option(metavar="postgresql://...", help=STORE_HELP)] = None,
    hnsw: Annotated[
        bool,
        typer.Option(
            "--hnsw", help="Also build a graph for approximate search; default from 200,000 images."
        ),
    ] = False,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Replace an index of another source or model."),
    ] = False,
    strict: options.Strict = False,
    data_root: options.DataRoot = None,
    download: options.Download = False,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Embed the images of a source for `maskcon search`; rerun it to resume or update.

    Added, changed and removed files are found by path, size and time, then by content: only new content is embedded.

    Example: `maskcon index runs/photos-maskcon-seed0 ./photos`
    """
    from maskcon.api import Run
    from maskcon.api.embedding import gather_images, header_of, lock_folder, open_encoder
    from maskcon.cli.progress import Meter
    from maskcon.retrieval.index import index_store
    from maskcon.retrieval.pgvector import PostgresStore
    from maskcon.retrieval.store import check_replaces, refresh

    finished = Run.open(run)
    embed, facts, _ = open_encoder(finished, device)
    with ExitStack() as stack:
        reading = stack.enter_context(Meter("reading", "images"))
        indexing = stack.enter_context(Meter("indexing", "images"))
        linking = stack.enter_context(Meter("building the graph", "images"))
        images = gather_images(
            finished,
            facts,
            source,
            data_root=data_root,
            download=download,
            strict=strict,
            progress=reading.show,
        )
        owner = header_of(finished, facts, images)
        place: Store
        folder: Path | None = None
        if store is not None:
            name = out or default_name(finished)
            place, where = (
                stack.enter_context(PostgresStore(store, name, owner)),
                f"the store, named {name!r}",
            )
        else:
            folder = Path(out) if out is not None else default_folder(finished)
            lock_folder(folder, stack)
            place, where = index_store(folder, owner), str(folder)
        check_replaces(place, where, replace)
        done = refresh(place, images, embed, strict=strict, progress=indexing.show)
        _print(done, where, as_json)
        if folder is not None:
            _graph(folder, done.total, hnsw, linking.show)
        elif hnsw:
            typer.echo("note: --hnsw is for an index in a folder; searches in the store are exact", err=True)


def _print(done: Refreshed, where: str, as_json: bool) -> None:
    from maskcon._utils.text import counted
    from maskcon.data.folder_layout import some

    counts = {
        "added": done.added,
        "changed": done.changed,
        "removed": done.removed,
        "unchanged": done.unchanged,
    }
    if as_json:
        record = {"index": where, "images": done.total, **counts, "embedded": done.embedded}
        typer.echo(json.dumps(record | {"left_out": done.failures, "notes": done.notes}))
        return
    typer.echo(
        f"{counted(done.total, 'image')} in {where}: "
        f"{', '.join(f'{count:,} {what}' for what, count in counts.items())}; {done.embedded:,} embedded"
    )
    if done.failures:
        named = [f"{path} ({why})" for path, why in done.failures.items()]
        were = "was" if len(named) == 1 else "were"
        typer.echo(
            f"note: {counted(len(named), 'image')} could not be read and {were} left out: {some(named)}",
            err=True,
        )
    for note in done.notes:
        typer.echo(f"note: {note}", err=True)


def _graph(folder: Path, count: int, asked: bool, progress: Progress) -> None:
    """Bring the graph up to date if requested, or if the index is large or had one before."""
    from maskcon._utils.errors import MaskconError
    from maskcon.retrieval.faiss_index import LARGE, is_available
    from maskcon.retrieval.index import Index, has_graph

    if not (asked or count >= LARGE or has_graph(folder)):
        return
    if not asked and not is_available():
        typer.echo("note: for faster search of so many images: pip install 'maskcon[faiss]'", err=True)
        return
    try:
        typer.echo(Index(folder).make_graph(progress), err=True)
    except MaskconError as error:
        if asked:
            raise
        typer.echo(f"note: {error}", err=True)

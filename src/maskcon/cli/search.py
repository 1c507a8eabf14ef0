"""`maskcon search`."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from maskcon.cli import options
from maskcon.cli.stores import STORE_HELP, default_folder, default_name

if TYPE_CHECKING:
    from maskcon.api import Run
    from maskcon.retrieval.index import Index
    from maskcon.retrieval.store import Header, Neighbours


def search(
    run: options.Run,
    queries: Annotated[list[Path], typer.Argument(metavar="QUERY", help="Images to search for.")],
    k: Annotated[int, typer.Option("-k", min=1, help="Number of nearest images to print.")] = 10,
    index: Annotated[
        str | None, typer.Option(help="Folder of the index, or its name in the store, if not the default.")
    ] = None,
    store: Annotated[str | None, typer.Option(metavar="postgresql://...", help=STORE_HELP)] = None,
    grid: Annotated[
        Path | None, typer.Option(help="Also draw the images found: a file to write, .png or .jpg.")
    ] = None,
    as_json: options.Json = False,
    approximate: Annotated[
        bool | None,
        typer.Option(
            "--approximate/--exact",
            help="Search by the HNSW graph, or not; default from 200,000 images, if there is one.",
        ),
    ] = None,
    data_root: options.DataRoot = None,
    device: options.Device = "auto",
) -> None:
    """Find the images of an index most similar to the queries by cosine; scores and paths, best first.

    Example: `maskcon search runs/photos-maskcon-seed0 query.jpg -k 10 --grid found.png`
    """
    from maskcon._utils.errors import UsageError
    from maskcon.api import Run
    from maskcon.retrieval.index import Index, has_graph
    from maskcon.retrieval.nearest import unit_rows
    from maskcon.retrieval.pgvector import PostgresStore
    from maskcon.retrieval.store import check_encoder

    finished = Run.open(run)
    with ExitStack() as stack:
        place: Index | PostgresStore
        if store is not None:
            if approximate:
                raise UsageError("--approximate is for an index in a folder; searches in the store are exact")
            name = index or default_name(finished)
            place, where = stack.enter_context(PostgresStore(store, name)), f"the store, named {name!r}"
            found_header = place.header()
        else:
            folder = Path(index) if index is not None else default_folder(finished)
            place, where = Index(folder), str(folder)
            found_header = place.header
        header = check_encoder(found_header, finished.encoder_digest(), where)
        if isinstance(place, Index):
            _choose(place, has_graph(folder), approximate)
        found = place.search(unit_rows(finished.encode(queries, device=device).numpy()), k)
    _print(queries, found, header, as_json)
    if grid is not None:
        _draw(grid, finished, queries, found, header, data_root)


def _choose(index: Index, has_graph: bool, approximate: bool | None) -> None:
    """Choose exact or approximate search; by default, an unusable graph only gives a note."""
    from maskcon._utils.errors import MaskconError
    from maskcon.retrieval.faiss_index import LARGE

    if approximate or (approximate is None and has_graph and len(index.entries) >= LARGE):
        try:
            index.use_graph()
        except MaskconError as error:
            if approximate:
                raise
            typer.echo(f"note: exact search: {error}", err=True)


def _print(queries: list[Path], found: Neighbours, header: Header, as_json: bool) -> None:
    from maskcon.data.folder_layout import show

    if as_json:
        answers = [
            {
                "query": str(query),
                "results": [
                    {"path": header.full_path(entry), "score": round(float(score), 6)}
                    for entry, score in zip(entries, scores, strict=True)
                ],
            }
            for query, entries, scores in zip(queries, found.entries, found.scores, strict=True)
        ]
        typer.echo(json.dumps({"search": found.how, "queries": answers}))
        return
    for query, entries, scores in zip(queries, found.entries, found.scores, strict=True):
        if len(queries) > 1:
            typer.echo(f"{show(str(query))}:")
        for entry, score in zip(entries, scores, strict=True):
            typer.echo(f"{score:.4f}  {show(header.full_path(entry))}")
        if not entries:
            typer.echo("the index is empty")
    if found.how != "exact":
        typer.echo(f"({found.how})", err=True)


def _draw(
    grid: Path, run: Run, queries: list[Path], found: Neighbours, header: Header, data_root: str | None
) -> None:
    """Draw queries and neighbours; images of a folder are read again, others come from the dataset."""
    from maskcon._utils.text import counted
    from maskcon.data.decoding import canvas_for, decode, decompression_bombs_refused
    from maskcon.report.search_grid import DECODE_SIDE, image_reader, write_grid

    picture_of = image_reader(
        header,
        canvas=canvas_for(run.config.image_size or DECODE_SIDE),  # as they were indexed
        root=None if data_root is None else Path(data_root),
    )
    with decompression_bombs_refused():
        asked = [decode(query, DECODE_SIDE, 3) for query in queries]
        gone = write_grid(grid, asked, found, picture_of)
    if gone:
        are = "is" if gone == 1 else "are"
        typer.echo(
            f"note: {counted(gone, 'image')} of those found {are} missing or cannot be read",
            err=True,
        )
    typer.echo(f"grid: {grid}", err=True)

"""`maskcon search`."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from maskcon.cli import options
from maskcon.cli.printing import echo

if TYPE_CHECKING:
    from maskcon.api import Run
    from maskcon.retrieval.store import Header, Neighbours


def search(
    run: options.Run,
    queries: Annotated[list[Path], typer.Argument(metavar="QUERY", help="Images to search for.")],
    k: Annotated[int, typer.Option("-k", min=1, help="Number of nearest images to print.")] = 10,
    index: Annotated[
        str | None, typer.Option(help="Folder of the index, or with --store its name; by default the run's.")
    ] = None,
    store: options.Store = None,
    grid: Annotated[
        Path | None, typer.Option(help="Also draw the images found: a file to write, .png or .jpg.")
    ] = None,
    as_json: options.Json = False,
    data_root: options.DataRoot = None,
    device: options.Device = "auto",
) -> None:
    """Find the images of an index that are most similar to the queries.

    Prints cosines and paths, best first.

    Example: `maskcon search runs/photos-teachcon-seed0 query.jpg -k 10 --grid found.png`
    """
    from maskcon.api import Run
    from maskcon.data.folder_layout import show
    from maskcon.retrieval.embeddings import Index
    from maskcon.retrieval.nearest import unit_rows
    from maskcon.retrieval.pgvector import PostgresStore
    from maskcon.retrieval.store import check_encoder

    finished = Run.open(run)
    with ExitStack() as stack:
        place: Index | PostgresStore
        if store is not None:
            name = index or options.index_name(run)
            place, where = stack.enter_context(PostgresStore(store, name)), f"the store, named {name!r}"
            found_header = place.header()
        else:
            folder = Path(index) if index is not None else run / options.INDEX_FOLDER
            place, where = Index(folder), str(folder)
            found_header = place.header
        header = check_encoder(found_header, finished.encoder_digest(), where)
        found = place.search(unit_rows(finished.encode(queries, device=device).numpy()), k)
    answers = [
        (query, [(header.full_path(entry), float(score)) for entry, score in zip(*rows, strict=True)])
        for query, *rows in zip(queries, found.entries, found.scores, strict=True)
    ]
    if as_json:
        records = [
            {"query": str(query), "results": [{"path": path, "score": round(s, 6)} for path, s in results]}
            for query, results in answers
        ]
        echo(json.dumps({"search": "exact", "queries": records}))
    else:
        for query, results in answers:
            if len(queries) > 1:
                echo(f"{show(str(query))}:")
            for path, score in results:
                echo(f"{score:.4f}  {show(path)}")
            if not results:
                echo("the index is empty")
    if grid is not None:
        _draw(grid, finished, queries, found, header, data_root)


def _draw(
    grid: Path, run: Run, queries: list[Path], found: Neighbours, header: Header, data_root: str | None
) -> None:
    """Draw queries and neighbours; read the images again from their files or the dataset."""
    from maskcon._utils.text import counted
    from maskcon.data.decoding import canvas_for, decode, decompression_bombs_refused
    from maskcon.report.search_grid import DECODE_SIDE, image_reader, write_grid

    image_of = image_reader(
        header,
        canvas=canvas_for(run.config.image_size or DECODE_SIDE),  # as they were indexed
        root=None if data_root is None else Path(data_root),
    )
    with decompression_bombs_refused():
        images = [decode(query, DECODE_SIDE, 3) for query in queries]
        missing = write_grid(grid, images, found, image_of)
    if missing:
        echo(f"note: {counted(missing, 'result')} missing or unreadable now, drawn in grey", err=True)
    echo(f"grid: {grid}", err=True)

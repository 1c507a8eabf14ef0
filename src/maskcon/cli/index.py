"""`maskcon index`."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from maskcon.cli import options
from maskcon.cli.printing import echo

if TYPE_CHECKING:
    from maskcon.retrieval.store import Store


def index(
    run: options.Run,
    source: Annotated[str, options.IMAGES],
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            help="Folder of the index, by default `index` in the run's; with --store, its name.",
        ),
    ] = None,
    store: options.Store = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace an index of another source or model.")
    ] = False,
    strict: options.Strict = False,
    data_root: options.DataRoot = None,
    download: options.Download = False,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Embed the images of a source for `maskcon search`.

    Rerun the same command to resume or update. Added, changed and removed files are detected by path, size and time,
    then by content: only new content is embedded.

    Example: `maskcon index runs/photos-teachcon-seed0 ./photos`
    """
    from maskcon._utils.text import counted
    from maskcon.api import Run
    from maskcon.api.embedding import gather_images, header_of, lock_folder, open_encoder
    from maskcon.cli.embed import print_left_out
    from maskcon.cli.progress import Meter
    from maskcon.retrieval.embeddings import INDEX, EmbeddingsStore
    from maskcon.retrieval.pgvector import PostgresStore
    from maskcon.retrieval.store import check_replaces, refresh

    finished = Run.open(run)
    embed, facts, _ = open_encoder(finished, device)
    with ExitStack() as stack:
        reading = stack.enter_context(Meter("reading", "images"))
        indexing = stack.enter_context(Meter("indexing", "images"))
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
        if store is not None:
            name = out or options.index_name(run)
            place, where = PostgresStore(store, name, owner), f"the store, named {name!r}"
            stack.enter_context(place)
        else:
            folder = Path(out) if out is not None else run / options.INDEX_FOLDER
            lock_folder(folder, stack)
            place, where = EmbeddingsStore(folder / INDEX, owner), str(folder)
        check_replaces(place, where, replace)
        done = refresh(place, images, embed, strict=strict, progress=indexing.show)
    counts = {name: getattr(done, name) for name in ("added", "changed", "removed", "unchanged")}
    if as_json:
        record = {"index": where, "images": done.total, **counts, "embedded": done.embedded}
        echo(json.dumps(record | {"left_out": done.failures, "notes": done.notes}))
        return
    changes = ", ".join(f"{count:,} {what}" for what, count in counts.items())
    echo(f"{counted(done.total, 'image')} in {where}: {changes}; {done.embedded:,} embedded")
    print_left_out(done)

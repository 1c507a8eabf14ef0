"""`maskcon index`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from maskcon.cli import options
from maskcon.cli.stores import STORE_HELP, default_folder, default_name, encoder_digest

if TYPE_CHECKING:
    from maskcon.data.packing import Progress
    from maskcon.models import Backbone
    from maskcon.models.encoder_file import EncoderFacts
    from maskcon.retrieval.search import FolderStore, Header, Refreshed, Store
    from maskcon.retrieval.search.refresh import Embed


def index(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")],
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A folder of pictures (class folders are not needed), a manifest (.csv, .parquet) with a column "
            "path, a data set by name or hf:NAME, or a .txt file with a path a line.",
        ),
    ],
    out: Annotated[
        str | None,
        typer.Option(
            help="Folder of the index, by default `index` in the run's; with --store its name there."
        ),
    ] = None,
    store: Annotated[str | None, typer.Option(metavar="postgresql://...", help=STORE_HELP)] = None,
    hnsw: Annotated[
        bool,
        typer.Option(
            "--hnsw", help="Also build a graph for approximate search; done unasked from 200,000 pictures."
        ),
    ] = False,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace", help="Replace an index of another source or model, or one that is damaged."
        ),
    ] = False,
    strict: options.Strict = False,
    data_root: options.DataRoot = None,
    download: options.Download = False,
    device: options.Device = "auto",
) -> None:
    """Embed the pictures of a source for `maskcon search`; the same command again takes in what changed.

    Files added, changed or removed are found by path, size and time, then by content: only new content is embedded.
    It may be stopped at any time, and goes on where it was.

    Example: `maskcon index runs/photos-maskcon-seed0 ./photos`
    """
    from maskcon.api import Run
    from maskcon.cli.pack import Meter
    from maskcon.data.collection import gather
    from maskcon.models.encoder_file import read_encoder
    from maskcon.retrieval.search import Header, refresh
    from maskcon.retrieval.search.pgvector import PostgresStore
    from maskcon.training.distributed import usable_device
    from maskcon.training.run_folder import ENCODER

    finished = Run.open(run)
    usable_device(device)  # before anything slow
    backbone, facts = read_encoder(finished.folder / ENCODER)
    with ExitStack() as stack:
        reading = stack.enter_context(Meter("reading", "images"))
        indexing = stack.enter_context(Meter("indexing", "images"))
        linking = stack.enter_context(Meter("building the graph", "images"))
        pictures = gather(
            source,
            canvas=facts.canvas,
            channels=facts.in_channels,
            root=None if data_root is None else Path(data_root),
            variant=finished.config.source_variant,
            download=download,
            strict=strict,
            progress=reading.show,
        )
        owner = Header(encoder_digest(finished), pictures.source, pictures.root)
        place: Store
        folder: FolderStore | None = None
        if store is not None:
            where = f"the store, named {out or default_name(finished)!r}"
            place = stack.enter_context(PostgresStore(store, out or default_name(finished), owner))
        else:
            place = folder = _folder_store(
                Path(out) if out is not None else default_folder(finished), owner, stack
            )
            where = str(folder.folder)
        _check_replaces(place, owner, where, replace)
        done = refresh(
            place,
            pictures,
            _embedder(backbone, facts, device),
            strict=strict,
            progress=indexing.show,
        )
        _tell(done, where, (*pictures.notes, *(folder.notes if folder is not None else ())))
        if folder is not None:
            _graph(folder, done.total, hnsw, linking.show)
        elif hnsw:
            typer.echo("note: --hnsw is for an index in a folder; searches in the store are exact")


def _folder_store(folder: Path, owner: Header, stack: ExitStack) -> FolderStore:
    from maskcon._utils.run_lock import FolderLock
    from maskcon.retrieval.search import FolderStore
    from maskcon.training.run_folder import make_writable

    make_writable(folder)
    stack.enter_context(FolderLock(folder))
    return FolderStore(folder, owner)


def _check_replaces(place: Store, owner: Header, where: str, replace: bool) -> None:
    """Refuse to write over an index of something else, unless asked to."""
    from maskcon._utils.errors import CorruptFileError, UsageError
    from maskcon.retrieval.search.base import check_owner

    try:
        found = place.header()
        if found is None:
            return
        check_owner(found, owner.encoder, where)
    except (CorruptFileError, UsageError):
        if not replace:
            raise
        place.forget()
        return
    if found.source != owner.source and not replace:
        raise UsageError(
            f"{where} holds an index of {found.source}, not of {owner.source}; choose another --out, or "
            "give --replace"
        )


def _embedder(backbone: Backbone, facts: EncoderFacts, device: str) -> Embed:
    """The run's encoder, as a function of pictures on a canvas."""
    import numpy as np
    from numpy.typing import NDArray

    from maskcon.api import features_of

    def embed(images: NDArray[np.uint8], sizes: NDArray[np.int32] | None) -> NDArray[np.floating]:
        return features_of(backbone, facts, images, sizes, device).numpy()

    return embed


def _tell(done: Refreshed, where: str, notes: Sequence[str]) -> None:
    from maskcon._utils.text import counted
    from maskcon.data.folder_layout import some

    typer.echo(
        f"{counted(done.total, 'picture')} in {where}: {done.added:,} added, {done.changed:,} changed, "
        f"{done.removed:,} removed, {done.unchanged:,} as before; {done.embedded:,} embedded"
    )
    if done.failures:
        named = [f"{path} ({why})" for path, why in done.failures.items()]
        were = "was" if len(named) == 1 else "were"
        typer.echo(
            f"note: {counted(len(named), 'picture')} could not be read and {were} left out: {some(named)}"
        )
    for note in notes:
        typer.echo(f"note: {note}")


def _graph(folder: FolderStore, count: int, asked: bool, progress: Progress) -> None:
    """Build the graph if it is asked for, wanted at this size or there from before, and not up to date."""
    from maskcon._utils.errors import MaskconError
    from maskcon.retrieval.search.faiss_index import LARGE, is_available

    if not (asked or count >= LARGE or folder.has_graph()):
        return
    if not asked and not is_available():
        typer.echo("note: for faster search of so many pictures: pip install 'maskcon[faiss]'")
        return
    try:
        typer.echo(folder.make_graph(progress))
    except MaskconError as error:
        if asked:
            raise
        typer.echo(f"note: {error}")

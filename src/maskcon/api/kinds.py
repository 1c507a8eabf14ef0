"""Open the kinds of a run's images: lock their folder, gather and embed the images, read earlier kinds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from maskcon._utils.errors import UsageError
from maskcon.api.embedding import gather_images, header_of, open_encoder, update_embeddings
from maskcon.api.run import Run, data_of
from maskcon.config.settings import Machine
from maskcon.data.collection import gather
from maskcon.data.decoding import DEFAULT_SIDE
from maskcon.data.huggingface import PREFIX
from maskcon.data.image_readers import Images
from maskcon.data.loading import takes_image_size
from maskcon.data.packing import Progress
from maskcon.discovery.kinds_folder import Origin, lock_kinds, read_folder
from maskcon.discovery.session import Session, embedded_of
from maskcon.retrieval.embeddings_file import read_embeddings
from maskcon.retrieval.store import Refreshed
from maskcon.training.run_folder import make_writable

FOLDER = "kinds"  # in the run's folder; holds the embeddings
EMBEDDINGS = "embeddings.parquet"


@contextmanager
def open_kinds(
    run: Run,
    source: str | None = None,
    folder: Path | None = None,
    *,
    machine: Machine | None = None,
    needs_kinds: bool = False,
    refresh: bool = False,
    reading: Progress | None = None,
    embedding: Progress | None = None,
) -> Iterator[tuple[Session, Refreshed]]:
    """Open the kinds of a run's images; only new or changed images go through the encoder.

    Args:
        source: images, see `maskcon.data.collection.gather`; by default those given last, or else the run's.
        folder: where the kinds are; by default RUN/kinds.
        needs_kinds: refuse a folder without kinds.
        refresh: accept kinds that were found with another encoder.
        reading, embedding: called as f(images done, total).

    Yields:
        The session, and the counts of embedded images, with notes and unreadable images.
    """
    folder = folder or run.folder / FOLDER
    machine = machine or Machine()
    with ExitStack() as stack:
        make_writable(folder)
        stack.enter_context(lock_kinds(folder))
        before = read_folder(folder)
        digest = run.encoder_digest()
        if before is None and needs_kinds:
            raise UsageError(f"there are no kinds in {folder} yet; run `maskcon kinds {run.folder}` first")
        if before is not None and before[1].encoder != digest and not refresh:
            raise UsageError(
                f"the kinds in {folder} were found with another model; give --refresh to find them anew, or another "
                "--out"
            )
        source = source if source is not None or before is None else before[1].source
        encode, facts, _ = open_encoder(run, machine.device)
        images = gather_images(
            run,
            facts,
            source if source is not None else data_of(run, machine),
            data_root=machine.data_root,
            download=machine.download,
            strict=machine.strict,
            progress=reading,
        )
        target = folder / EMBEDDINGS
        done = update_embeddings(
            target,
            header_of(run, facts, images),
            images,
            encode,
            strict=machine.strict,
            replace=True,
            progress=embedding,
        )
        origin = Origin(
            digest, None if source is None else images.source, {} if before is None else before[1].sheets
        )
        embedded = embedded_of(read_embeddings(target))
        yield Session(folder, images, embedded, None if before is None else before[0], origin), done


def images_to_export(run: Run, session: Session, machine: Machine) -> Images:
    """Return a reader of the original image files, also if the run decoded them at another size."""
    if session.origin.source is not None or run.source.startswith(PREFIX) or not takes_image_size(run.source):
        return session.images
    root = None if machine.data_root is None else Path(machine.data_root)
    return gather(run.source, canvas=DEFAULT_SIDE, channels=3, root=root, variant=run.config.protocol)

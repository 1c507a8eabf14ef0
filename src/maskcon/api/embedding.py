"""Embed the images of any source with a run's encoder, for `maskcon embed`, `index` and `kinds`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskcon import __version__
from maskcon._utils.errors import DataError
from maskcon._utils.files import FolderLock
from maskcon.api.run import Run, features_of
from maskcon.data.collection import Given, gather
from maskcon.data.image_readers import Images, none_readable
from maskcon.data.packing import Progress
from maskcon.models.encoder_file import EncoderFacts
from maskcon.retrieval.embeddings import EmbeddingsStore, check_target, parts_folder, remove_empty_parts
from maskcon.retrieval.store import Embed, Header, Refreshed, check_replaces, refresh
from maskcon.training.distributed import usable_device
from maskcon.training.run_folder import make_writable


def open_encoder(run: Run, device: str) -> tuple[Embed, EncoderFacts, int]:
    """Read a run's encoder: return a function that embeds images, its facts, and the length of its embeddings."""
    usable_device(device)  # before anything slow
    backbone, facts = run.encoder(device)

    def embed(images: NDArray[np.uint8], sizes: NDArray[np.int32] | None) -> NDArray[np.floating]:
        return features_of(backbone, facts, images, sizes, device).numpy()

    return embed, facts, backbone.features


def gather_images(
    run: Run,
    facts: EncoderFacts,
    source: Given,
    *,
    data_root: str | None,
    download: bool,
    strict: bool,
    progress: Progress | None,
) -> Images:
    """List the images of a source, to be decoded as the encoder needs them."""
    return gather(
        source,
        canvas=facts.canvas,
        channels=facts.in_channels,
        root=None if data_root is None else Path(data_root),
        variant=run.config.protocol,
        download=download,
        strict=strict,
        progress=progress,
    )


def header_of(run: Run, facts: EncoderFacts, images: Images) -> Header:
    """Describe the encoder and the images of an embeddings file."""
    names = ("backbone", "image_size", "in_channels", "test_resize")
    details = {name: getattr(facts, name) for name in names}
    details |= {"run": run.folder.resolve().name, "version": __version__}
    return Header(run.encoder_digest(), images.source, images.root, details)


def lock_folder(folder: Path, stack: ExitStack) -> None:
    """Create a folder and keep other writers out until the stack ends."""
    make_writable(folder)
    stack.enter_context(FolderLock(folder))


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
    """Write or update the embeddings file `out`; return the counts, and the length of the vectors.

    Args:
        source: see `maskcon.data.collection.gather`.
        replace: overwrite embeddings of another encoder or source. Files of other programs are never overwritten.
        progress, reading: called as f(images done, total), while embedding and while a whole dataset is read.
    """
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
    """Bring an embeddings file up to date with these images; see `write_embeddings`."""
    if not given.paths:
        raise DataError(none_readable(given, given.unreadable))
    with ExitStack() as stack:
        lock_folder(parts_folder(target), stack)
        stack.callback(remove_empty_parts, target)
        store = EmbeddingsStore(target, header)
        check_replaces(store, str(target), replace)
        return refresh(store, given, encode, strict=strict, progress=progress)

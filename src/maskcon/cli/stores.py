"""What `maskcon embed`, `index` and `search` share: the run's encoder, its images, and where an index is kept."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from maskcon.api import Run
    from maskcon.data.collection import Given
    from maskcon.data.image_readers import Images
    from maskcon.data.packing import Progress
    from maskcon.models.encoder_file import EncoderFacts
    from maskcon.retrieval.store import Embed, Header

STORE_HELP = (
    "Keep the index in PostgreSQL with pgvector instead of a folder. Prefer PGPASSWORD for a password."
)
FOLDER = "index"  # in the run's folder


def default_folder(run: Run) -> Path:
    """Return the folder of a run's index."""
    return run.folder / FOLDER


def default_name(run: Run) -> str:
    """Return the name of a run's index in a database: that of the run's folder."""
    return run.folder.resolve().name


def open_encoder(run: Run, device: str) -> tuple[Embed, EncoderFacts, int]:
    """Read a run's encoder once: as a function of images, its facts, and the length of its embeddings."""
    import numpy as np
    from numpy.typing import NDArray

    from maskcon.api import features_of
    from maskcon.models.encoder_file import read_encoder
    from maskcon.training.distributed import usable_device
    from maskcon.training.run_folder import ENCODER

    usable_device(device)  # before anything slow
    backbone, facts = read_encoder(run.folder / ENCODER)

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
    """List the images of a source, to be decoded as the run's encoder needs them."""
    from maskcon.data.collection import gather

    return gather(
        source,
        canvas=facts.canvas,
        channels=facts.in_channels,
        root=None if data_root is None else Path(data_root),
        variant=run.config.source_variant,
        download=download,
        strict=strict,
        progress=progress,
    )


def header_of(run: Run, facts: EncoderFacts, images: Images) -> Header:
    """Describe which encoder embeds which images."""
    from maskcon import __version__
    from maskcon.retrieval.store import Header

    names = ("backbone", "image_size", "in_channels", "test_resize")
    details = {name: getattr(facts, name) for name in names}
    details |= {"run": run.folder.resolve().name, "version": __version__}
    return Header(run.encoder_digest(), images.source, images.root, details)


def lock_folder(folder: Path, stack: ExitStack) -> None:
    """Create a folder and keep other writers out until the stack ends."""
    from maskcon._utils.locks import FolderLock
    from maskcon.training.run_folder import make_writable

    make_writable(folder)
    stack.enter_context(FolderLock(folder))

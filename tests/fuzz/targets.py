"""What is fuzzed: readers of files that anyone could have written, each as a function of bytes.

A reader gives a value, or one line: an error of ours. Anything else, more than `SECONDS`, is a defect.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

from maskcon._utils.errors import MaskconError
from maskcon._utils.files import checksums
from maskcon.config.settings import RunConfig
from maskcon.data.decoding import UndecodableError, read_shape
from maskcon.data.kinds_file import read_kinds
from maskcon.data.manifest import listed_images, read_manifest
from maskcon.retrieval.embeddings import INDEX, Index
from maskcon.retrieval.embeddings_file import SEAL, UNSEALED, read_embeddings
from maskcon.training.checkpoint import TENSORS, VALUES, load_checkpoint

SECONDS = 1.0
CORPUS = Path(__file__).parent / "corpus"
EMPTY_TENSORS = (2).to_bytes(8, "little") + b"{}"
_FOLDER = tempfile.TemporaryDirectory(prefix="maskcon-fuzz-")
WORK = Path(_FOLDER.name)


def placed(name: str, data: bytes) -> Path:
    """Write a file in the scratch folder."""
    path = WORK / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def manifest(data: bytes) -> None:
    path = placed("manifest/list.csv", data)
    for read in (read_manifest, lambda found: list(listed_images(found))):
        one_line(lambda read=read: read(path))  # type: ignore[misc]


def header(data: bytes) -> None:
    read_shape(BytesIO(data))


def config(data: bytes) -> None:
    RunConfig.from_yaml(placed("config.yaml", data))


def checkpoint(data: bytes) -> None:
    """Fuzz what is behind the checksum, which anyone can compute."""
    contents = {TENSORS: EMPTY_TENSORS, VALUES: data}
    for name, content in {**contents, "SHA256SUMS": checksums(contents)}.items():
        placed(f"step-00000001/{name}", content)
    one_line(lambda: load_checkpoint(WORK / "step-00000001"))
    placed("step-00000002/SHA256SUMS", data)
    for name, content in contents.items():
        placed(f"step-00000002/{name}", content)
    load_checkpoint(WORK / "step-00000002")


def resealed(data: bytes) -> bytes:
    """Return the bytes with a right checksum, where there is a place for one."""
    place = data.rfind(SEAL) + len(SEAL)
    if place < len(SEAL) or len(data) < place + len(UNSEALED):
        return data
    blank = data[:place] + UNSEALED + data[place + len(UNSEALED) :]
    return data[:place] + hashlib.sha256(blank).hexdigest().encode() + data[place + len(UNSEALED) :]


def embeddings(data: bytes) -> None:
    read_embeddings(placed("embeddings.parquet", resealed(data)))


def index(data: bytes) -> None:
    placed(f"index/{INDEX}", resealed(data))
    Index(WORK / "index")


def kinds(data: bytes) -> None:
    read_kinds(placed("kinds.csv", data))


TARGETS: dict[str, Callable[[bytes], None]] = {
    read.__name__: read for read in (manifest, header, config, checkpoint, embeddings, index, kinds)
}


def one_line(read: Callable[[], object]) -> None:
    """Read; raise unless it gives a value, or an error of ours in one line."""
    try:
        read()
    except (MaskconError, UndecodableError) as error:
        if not str(error) or "\n" in str(error):
            raise AssertionError(f"not one line: {error!r}") from error

"""An index as one file: header, entries, vectors, checksum. Read only if every byte is as it was written.

    8 bytes   magic
    8 bytes   length of the header, little-endian
    header    JSON: version, encoder, source, counts and lengths
    entries   JSON: [[path, size, mtime_ns, digest], ...]
    padding   zeros up to a multiple of 64
    vectors   float32 little-endian [N, D], rows of length 1
    32 bytes  sha256 of all before

It is written under another name, synced and renamed: a kill or a full disk leaves the file that was there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from maskcon._utils.errors import CorruptFileError, MaskconError, UsageError
from maskcon._utils.failpoints import failpoint
from maskcon._utils.files import sync_folder
from maskcon.retrieval.search.base import Entry, Header, Vectors

MAGIC = b"MASKCIDX"
VERSION = 1
ALIGNMENT = 64
CHECKSUM_BYTES = 32
READ_BYTES = 1 << 22
LARGEST_HEADER = 1 << 20
REMEDY = "delete it and give the `maskcon index` command again"


@dataclass(frozen=True, eq=False)
class IndexFile:
    """What a file holds. vectors: [N, D] float32, a memory map; digest: the file's checksum (hex)."""

    path: Path
    header: Header
    entries: list[Entry]
    vectors: Vectors
    digest: str


def write_index(
    path: Path, header: Header, entries: Sequence[Entry], dimension: int, blocks: Iterable[Vectors]
) -> str:
    """Write the file in one pass over blocks of rows that together are [N, dimension]; returns its checksum."""
    listed = json.dumps([[e.path, e.size, e.mtime_ns, e.digest] for e in entries]).encode("ascii")
    described = {
        "version": VERSION,
        **asdict(header),
        "count": len(entries),
        "dimension": dimension,
        "entries_bytes": len(listed),
    }
    head = json.dumps(described, sort_keys=True).encode("ascii")
    fixed = MAGIC + struct.pack("<Q", len(head)) + head + listed
    fixed += b"\0" * (-len(fixed) % ALIGNMENT)

    def pieces() -> Iterable[bytes]:
        yield fixed
        rows = 0
        for block in blocks:
            if block.ndim != 2 or block.shape[1] != dimension:
                raise UsageError(f"vectors must be [n, {dimension}], got {list(block.shape)}")
            rows += len(block)
            yield np.ascontiguousarray(block, dtype="<f4").tobytes()
        if rows != len(entries):
            raise UsageError(f"{len(entries)} entries came with {rows} vectors")

    return write_sealed(path, pieces())


def read_index(path: Path) -> IndexFile:
    """Check the whole file, then map its vectors; a damaged, cut or foreign file is refused."""
    with opened(path) as file:  # once: by another name lookup a refresh might have replaced it
        digest = checked_digest(file, path, MAGIC)
        try:
            described, start = read_head(file, MAGIC)
            version, count, dimension = (int(described[key]) for key in ("version", "count", "dimension"))
            if version != VERSION:
                raise UsageError(
                    f"{path} is an index of version {version}, this maskcon reads {VERSION}; {REMEDY}"
                )
            header = Header(described["encoder"], described["source"], described["root"])
            entries = [Entry(*values) for values in json.loads(file.read(described["entries_bytes"]))]
            offset = -(-(start + described["entries_bytes"]) // ALIGNMENT) * ALIGNMENT
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, UsageError):
                raise
            raise CorruptFileError(f"{path} is not a readable index ({error}); {REMEDY}") from None
        expected = offset + count * dimension * 4 + CHECKSUM_BYTES
        if len(entries) != count or os.fstat(file.fileno()).st_size != expected:
            raise CorruptFileError(f"{path} does not fit its own description; {REMEDY}")
        vectors: Vectors = np.zeros((count, dimension), dtype=np.float32)
        if vectors.size:  # nothing cannot be mapped
            vectors = np.memmap(file, dtype="<f4", mode="r", offset=offset, shape=(count, dimension))
    return IndexFile(path, header, entries, vectors, digest)


def write_sealed(path: Path, pieces: Iterable[bytes]) -> str:
    """Replace a file by these bytes and their sha256, all or nothing; returns the sha256 (hex)."""
    temporary = path.with_name(f".{path.name}.tmp")
    digest = hashlib.sha256()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            for piece in pieces:
                file.write(piece)
                digest.update(piece)
                failpoint("index-in-mid-file")
            file.write(digest.digest())
            file.flush()
            os.fsync(file.fileno())
        failpoint("index-before-rename")
        temporary.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if not isinstance(error, OSError):
            raise
        raise MaskconError(
            f"could not write {path}: {error.strerror or error}; what was there is intact. "
            "Make room, or choose another --out"
        ) from error
    sync_folder(path.parent)
    return digest.hexdigest()


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BufferedReader]:
    """The file to read, with what the system says against it as one line."""
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None


def checked_digest(file: BinaryIO, path: Path, magic: bytes) -> str:
    """The checksum of a sealed file of this kind, if its bytes agree with it."""
    digest = hashlib.sha256()
    left = os.fstat(file.fileno()).st_size - CHECKSUM_BYTES
    if file.read(len(magic)) != magic:
        raise CorruptFileError(f"{path} was not written by maskcon as this kind of file; {REMEDY}")
    file.seek(0)
    while left > 0:
        piece = file.read(min(READ_BYTES, left))
        if not piece:
            break
        digest.update(piece)
        left -= len(piece)
    if file.read() != digest.digest():
        raise CorruptFileError(f"{path} is damaged or cut short: it does not match its checksum; {REMEDY}")
    return digest.hexdigest()


def read_head(file: BinaryIO, magic: bytes) -> tuple[dict[str, Any], int]:
    """The JSON header of a sealed file that was checked, and where what follows it starts."""
    file.seek(len(magic))
    (length,) = struct.unpack("<Q", file.read(8))
    if length > LARGEST_HEADER:
        raise ValueError(f"a header of {length} bytes")
    values = json.loads(file.read(length))
    if not isinstance(values, dict):
        raise ValueError("its header is no object")
    return values, len(magic) + 8 + length


def gathered(
    vectors_at: Callable[[Sequence[int]], Vectors], count: int, step: int = 4096
) -> Iterable[Vectors]:
    """Rows 0..count-1 in blocks, so that an index larger than memory can be written."""
    for start in range(0, count, step):
        yield vectors_at(range(start, min(start + step, count)))

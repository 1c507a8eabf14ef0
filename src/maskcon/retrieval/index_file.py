"""Vectors in one file: header, entries, vectors, checksum. A file with any changed byte is refused.

    8 bytes   magic
    8 bytes   length of the header, little-endian
    header    JSON: version, encoder, source, counts and lengths
    entries   JSON: [[path, size, mtime_ns, digest], ...]
    padding   zeros up to a multiple of 64
    vectors   float32 little-endian [N, D], rows of length 1
    32 bytes  sha256 of everything before

Files are written under another name, synced and renamed: a kill or a full disk leaves the previous file intact.
An index is such a file; so are the parts in which vectors wait for their index or embeddings file (`Parts`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import CorruptFileError, MaskconError, UsageError
from maskcon._utils.failpoints import failpoint
from maskcon._utils.files import sync_folder
from maskcon.retrieval.store import Entry, Header, Vectors

MAGIC = b"MASKCIDX"
VERSION = 1
ALIGNMENT = 64
CHECKSUM_BYTES = 32
READ_BYTES = 1 << 22
LARGEST_HEADER = 1 << 20
BLOCK_ROWS = 4096  # copied at a time: files may be larger than memory
REMEDY = "delete it and run `maskcon index` again"


@dataclass(frozen=True, eq=False)
class IndexFile:
    """Content of a file; vectors: [N, D] float32, a memory map; digest: the file's checksum (hex)."""

    path: Path
    header: Header
    entries: list[Entry]
    vectors: Vectors
    digest: str

    def digests(self) -> Iterable[str]:
        return (entry.digest for entry in self.entries)

    def take(self, rows: NDArray[np.int64]) -> Vectors:
        return self.vectors[rows]


class VectorSource(Protocol):
    """Stored vectors by row, each computed from the content with this digest."""

    def digests(self) -> Iterable[str]: ...

    def take(self, rows: NDArray[np.int64]) -> Vectors: ...


def write_index(
    path: Path, header: Header, entries: Sequence[Entry], dimension: int, blocks: Iterable[Vectors]
) -> str:
    """Write the file in one pass over blocks of rows, together [N, dimension]; return its checksum."""
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
    """Check the whole file and map its vectors; damaged, truncated and foreign files are refused."""
    with opened(path) as file:  # once: a refresh may replace the file in between
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
            raise CorruptFileError(f"{path} does not match its own header; {REMEDY}")
        vectors: Vectors = np.zeros((count, dimension), dtype=np.float32)
        if vectors.size:  # an empty file cannot be mapped
            vectors = np.memmap(file, dtype="<f4", mode="r", offset=offset, shape=(count, dimension))
    return IndexFile(path, header, entries, vectors, digest)


def write_sealed(path: Path, pieces: Iterable[bytes]) -> str:
    """Replace a file by these bytes and their sha256, all or nothing; return the sha256 (hex)."""
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
            "Free some space, or choose another --out"
        ) from error
    sync_folder(path.parent)
    return digest.hexdigest()


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BufferedReader]:
    """Open a file to read; a system error becomes one line."""
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None


def checked_digest(file: BinaryIO, path: Path, magic: bytes) -> str:
    """Return the checksum of a sealed file after comparing it with the file's bytes."""
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
    """Read the JSON header of a checked file, and the offset of what follows."""
    file.seek(len(magic))
    (length,) = struct.unpack("<Q", file.read(8))
    if length > LARGEST_HEADER:
        raise ValueError(f"a header of {length} bytes")
    values = json.loads(file.read(length))
    if not isinstance(values, dict):
        raise ValueError("its header is not an object")
    return values, len(magic) + 8 + length


class Parts:
    """Vectors of an unfinished refresh, one small file per save: complete, or not there.

    notes: damaged or foreign parts that were dropped.
    """

    def __init__(self, folder: Path, owner: Header | None) -> None:
        self.folder, self.owner = folder, owner
        self.notes: list[str] = []
        self._files: list[IndexFile] | None = None

    def files(self) -> list[IndexFile]:
        """Parts that an earlier attempt with this encoder left; others are deleted."""
        if self._files is not None:
            return self._files
        encoder, self._files = self._header().encoder, []
        for path in sorted(self.folder.glob("*.part")):
            try:
                part = read_index(path)
                if part.header.encoder == encoder and path.stem.isdecimal():
                    self._files.append(part)
                    continue
                self.notes.append(f"{path.name} comes from another model and was removed")
            except MaskconError:
                self.notes.append(
                    f"{path.name} of an earlier attempt is damaged; its images are embedded again"
                )
            path.unlink(missing_ok=True)
        return self._files

    def digests(self) -> set[str]:
        return {digest for part in self.files() for digest in part.digests()}

    def add(self, digests: Sequence[str], vectors: Vectors) -> None:
        number = 1 + max((int(part.path.stem) for part in self.files()), default=0)
        path = self.folder / f"{number:08d}.part"
        entries = [Entry("", 0, 0, digest) for digest in digests]
        write_index(path, self._header(), entries, vectors.shape[1], [vectors])
        self.files().append(read_index(path))

    def remove(self) -> None:
        self._files = []
        shutil.rmtree(self.folder, ignore_errors=True)

    def _header(self) -> Header:
        if self.owner is None:
            raise UsageError("this store was opened to read; give it an owner to write")
        return self.owner


def collect(
    sources: Sequence[VectorSource], digests: Sequence[str], dimension: int, step: int = BLOCK_ROWS
) -> Iterator[Vectors]:
    """Yield the vectors of these contents in order, in blocks of `step` rows."""
    place_of: Mapping[str, tuple[int, int]] = {
        digest: (number, row)
        for number, source in enumerate(sources)
        for row, digest in enumerate(source.digests())
    }
    places = np.array([place_of[digest] for digest in digests], dtype=np.int64).reshape(-1, 2)
    for start in range(0, len(digests), step):
        chosen = places[start : start + step]
        block = np.empty((len(chosen), dimension), dtype=np.float32)
        for number in np.unique(chosen[:, 0]).tolist():
            here = chosen[:, 0] == number
            block[here] = sources[number].take(chosen[here, 1])
        yield block

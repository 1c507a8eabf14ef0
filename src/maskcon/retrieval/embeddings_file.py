"""Read and write the embeddings file: Parquet with a header and a checksum.

Columns: `path`, `coarse` (label, null if unknown), `stamp` (size;mtime_ns), `digest` (sha256 of the content), `vector`
(float32, as `Run.encode` gives it: not normalised). Any Parquet reader can read it. `maskcon embed` writes one; an
index and the unfinished parts of either have the same format.

The footer holds `maskcon` (the header, JSON) and `maskcon.seal` (SEAL and 64 hex digits). The digits are the sha256 of
the whole file with zeros in their place: any changed, missing or added byte is noticed before anything is parsed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from maskcon._utils.errors import CorruptFileError, UsageError, first_line
from maskcon._utils.files import failpoint, replacing
from maskcon._utils.paths import check_regular
from maskcon.retrieval.store import Entry, Header, Vectors

HEADER_KEY, SEAL_KEY = "maskcon", "maskcon.seal"
SEAL = b"maskcon embeddings, sha256="
UNSEALED = b"0" * 64
TAIL_BYTES = 8  # a Parquet file ends with the length of its footer and the letters PAR1
CHUNK_BYTES = 1 << 22
FORMAT = 2
TEXTS = ("path", "coarse", "stamp", "digest")
COMPRESSION = {**dict.fromkeys(TEXTS, "zstd"), "vector.list.element": "none"}
GROUP_ROWS = 1024
ESCAPED = re.compile(r"\\(?:x([0-9a-f]{2})|\\)")


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Content of an embeddings file: N entries and their vectors, float32 [N, D].

    digest: checksum of the file
    """

    header: Header
    entries: list[Entry]
    vectors: Vectors
    digest: str

    def __len__(self) -> int:
        return len(self.entries)

    def file(self, row: int) -> Path:
        """Return the full path of the image in this row."""
        if not self.header.root:
            raise UsageError(f"{self.entries[row].path} of {self.header.source} is not a file")
        return Path(self.header.full_path(self.entries[row]))


def read_embeddings(path: str | Path) -> Embeddings:
    """Read an embeddings file; refuse a truncated, changed or foreign one.

    Example:
        >>> found = read_embeddings("embeddings.parquet")  # doctest: +SKIP
        >>> found.entries[0].path, found.entries[0].coarse, found.vectors.shape  # doctest: +SKIP
        ('cat/1.jpg', 'cat', (2000, 512))
    """
    path = Path(path)
    try:
        # opened once: pyarrow takes some paths for URLs, and what was checked must be what is read
        check_regular(path)
        with path.open("rb") as handle:
            digest = _checked_digest(handle, path)
            try:  # no threads, no read-ahead: pyarrow's may abort a process that ends with an error
                return _read(pq.ParquetFile(handle, pre_buffer=False), path, digest)
            except (pa.ArrowException, OSError, ValueError) as error:
                raise CorruptFileError(f"{path} cannot be read as Parquet ({first_line(error)})") from None
    except FileNotFoundError:
        raise UsageError(f"no embeddings at {path}; write them with `maskcon embed`") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None


def write_embeddings(
    path: Path, header: Header, entries: Sequence[Entry], vectors: Sequence[Vectors]
) -> None:
    """Replace the file by entries and vectors [D]; an error leaves the old file."""
    with replacing(path) as file:
        schema = _schema(len(vectors[0]))
        with pq.ParquetWriter(file, schema, use_dictionary=["coarse"], compression=COMPRESSION) as writer:
            for start in range(0, len(entries), GROUP_ROWS):
                rows = slice(start, start + GROUP_ROWS)
                block = np.concatenate(vectors[rows]).astype(np.float32, copy=False)
                texts = zip(*map(_texts, entries[rows]), strict=True)
                columns = [
                    *(pa.array(column, pa.string()) for column in texts),
                    pa.FixedSizeListArray.from_arrays(pa.array(block), len(vectors[0])),
                ]
                writer.write_table(pa.Table.from_arrays(columns, schema=schema))
                failpoint("index-in-mid-file")
            fields = {
                **header.details,
                **{"encoder_sha256": header.encoder, "source": header.source, "root": header.root},
                **{"features": len(vectors[0]), "format": FORMAT},
            }
            seal = (SEAL + UNSEALED).decode()
            writer.add_key_value_metadata({HEADER_KEY: json.dumps(fields, sort_keys=True), SEAL_KEY: seal})
        place = _seal_place(file, path)
        digest = _digest(file, place)
        file.seek(place)
        file.write(digest)


def escaped(name: str) -> str:
    """Write a file name as valid text.

    Bytes that are not UTF-8 become \\xNN, and backslashes are doubled.

    >>> escaped(os.fsdecode(b"caf\\xe9")), unescaped(escaped("a\\\\xe9"))
    ('caf\\\\xe9', 'a\\\\xe9')
    """
    return os.fsencode(name.replace("\\", r"\\")).decode("utf-8", errors="backslashreplace")


def unescaped(text: str) -> str:
    """Undo `escaped`."""
    return ESCAPED.sub(lambda found: os.fsdecode(bytes.fromhex(found[1])) if found[1] else "\\", text)


def _texts(entry: Entry) -> tuple[str | None, ...]:
    coarse = None if entry.coarse is None else escaped(entry.coarse)
    return escaped(entry.path), coarse, f"{entry.size};{entry.mtime_ns}", entry.digest


def _entry(path: str, coarse: str | None, stamp: str, digest: str) -> Entry:
    size, mtime_ns = stamp.split(";")
    label = None if coarse is None else unescaped(coarse)
    return Entry(unescaped(path), int(size), int(mtime_ns), digest, label)


def _read(file: Any, path: Path, digest: str) -> Embeddings:
    try:
        values = json.loads(file.metadata.metadata[HEADER_KEY.encode()])
        header_format, features = values.pop("format"), values.pop("features")
        encoder, source, root = (values.pop(name) for name in ("encoder_sha256", "source", "root"))
        header = Header(encoder, source, root or "", values)
    except (KeyError, ValueError, TypeError, AttributeError):
        header_format = None
    if header_format != FORMAT or not file.schema_arrow.equals(_schema(features), check_metadata=False):
        raise CorruptFileError(f"{path} comes from another version of maskcon; embed again")
    columns = file.read(columns=list(TEXTS), use_threads=False)
    vectors = np.empty((len(columns), features), np.float32)
    start = 0
    for number in range(file.num_row_groups):  # one by one: twice the file in memory would be too much
        block = file.read_row_group(number, columns=["vector"], use_threads=False).column(0).combine_chunks()
        if block.null_count or block.flatten().null_count:
            raise CorruptFileError(f"{path} has rows without a vector; embed again")
        vectors[start : start + len(block)] = block.flatten().to_numpy().reshape(-1, features)
        start += len(block)
    if any(columns.column(name).null_count for name in ("path", "stamp", "digest")):
        raise CorruptFileError(f"{path} has rows without a path, stamp or digest; embed again")
    texts = (columns.column(name).to_pylist() for name in TEXTS)
    return Embeddings(header, [_entry(*row) for row in zip(*texts, strict=True)], vectors, digest)


def _schema(features: int) -> Any:
    vector = pa.field("vector", pa.list_(pa.float32(), features))
    return pa.schema([*(pa.field(name, pa.string()) for name in TEXTS), vector])


def _checked_digest(file: BinaryIO, path: Path) -> str:
    """Return the checksum of a file; refuse one whose bytes do not match it."""
    place = _seal_place(file, path)
    written = file.read(len(UNSEALED))
    if written != _digest(file, place):
        raise CorruptFileError(f"{path} does not match its checksum: it was changed or damaged; embed again")
    return written.decode()


def _seal_place(file: BinaryIO, path: Path) -> int:
    """Find the 64 digits; leave the file positioned there."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - TAIL_BYTES))
    tail = file.read(TAIL_BYTES)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != b"PAR1" or length + TAIL_BYTES > size:
        raise CorruptFileError(f"{path} is not a Parquet file, or its end is missing")
    start = size - TAIL_BYTES - length
    file.seek(start)
    footer = file.read(length)
    if footer.count(SEAL) != 1:
        raise CorruptFileError(
            f"{path} was not written by `maskcon embed`, or was saved again by another program: it has no seal"
        )
    return file.seek(start + footer.index(SEAL) + len(SEAL))


def _digest(file: BinaryIO, place: int) -> bytes:
    """Compute the sha256 (hex) of the file with zeros for the digits at `place`."""
    digest = hashlib.sha256()
    file.seek(0)
    left = place
    while left and (chunk := file.read(min(left, CHUNK_BYTES))):
        digest.update(chunk)
        left -= len(chunk)
    digest.update(UNSEALED)
    file.seek(place + len(UNSEALED))
    while chunk := file.read(CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest().encode()

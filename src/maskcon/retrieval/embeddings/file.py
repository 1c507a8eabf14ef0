"""The embeddings file: Parquet with the facts of the model in its footer, and a checksum over every byte of it.

The footer holds `maskcon` (the facts, JSON) and `maskcon.seal` (SEAL and 64 hex digits). The digits are the sha256 of
the whole file with zeros in their place, so a changed, missing or added byte anywhere is noticed before anything is
parsed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from maskcon._utils.errors import CorruptFileError, MaskconError, UsageError
from maskcon._utils.files import sync_file, sync_folder

FACTS_KEY, SEAL_KEY = "maskcon", "maskcon.seal"
SEAL = b"maskcon embeddings, sha256="
UNSEALED = b"0" * 64
TAIL_BYTES = 8  # a Parquet file ends with the length of its footer and the letters PAR1
CHUNK_BYTES = 1 << 22
FORMAT = 1


@dataclass(frozen=True)
class Facts:
    """Which encoder saw which pictures, and how.

    encoder_sha256: of the run's encoder.safetensors; equal hashes mean comparable vectors
    source: by which the pictures are found from any directory
    root: the folder that paths start from, None for pictures that are not files
    """

    encoder_sha256: str
    backbone: str
    image_size: int
    in_channels: int
    test_resize: str
    features: int
    source: str
    root: str | None
    run: str
    version: str
    format: int = FORMAT

    def same_pictures_and_encoder(self, other: Facts) -> bool:
        """May vectors of one file be taken over into the other, picture by picture?"""
        where = (self.root, other.root) if self.root is not None else (self.source, other.source)
        return (
            self.encoder_sha256 == other.encoder_sha256
            and (self.root is None) == (other.root is None)
            and where[0] == where[1]
        )


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Rows of an embeddings file: N paths, labels (None: unknown), stamps, and vectors float32 [N, F]."""

    paths: tuple[str, ...]
    coarse: tuple[str | None, ...]
    stamps: tuple[str, ...]
    vectors: NDArray[np.float32]
    facts: Facts

    def __len__(self) -> int:
        return len(self.paths)

    def file(self, row: int) -> Path:
        """Where the picture of this row lies."""
        if self.facts.root is None:
            raise UsageError(f"{self.paths[row]} of {self.facts.source} is not a file of its own")
        return Path(self.facts.root) / self.paths[row]


def read_embeddings(path: str | Path) -> Embeddings:
    """All rows of an embeddings file; a truncated, changed or foreign one is refused.

    Example:
        >>> found = read_embeddings("embeddings.parquet")  # doctest: +SKIP
        >>> found.paths[0], found.coarse[0], found.vectors.shape  # doctest: +SKIP
        ('cat/1.jpg', 'cat', (2000, 512))
    """
    with EmbeddingsFile(path) as file:
        groups = list(file.groups())
        return Embeddings(
            paths=tuple(name for group in groups for name in group.paths),
            coarse=tuple(label for group in groups for label in group.coarse),
            stamps=tuple(stamp for group in groups for stamp in group.stamps),
            vectors=np.concatenate(
                [np.empty((0, file.facts.features), np.float32), *(group.vectors for group in groups)]
            ),
            facts=file.facts,
        )


class EmbeddingsFile:
    """An embeddings file, checked and open, to be read group of rows by group of rows."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        # opened here, once: pyarrow takes some paths for addresses, and what was checked is what is read
        self._handle = _opened(self.path)
        try:
            _check_seal(self._handle, self.path)
            self._file = pq.ParquetFile(self._handle)
            self.facts = _read_facts(self._file.metadata.metadata, self.path)
            if not self._file.schema_arrow.equals(_schema(self.facts.features), check_metadata=False):
                raise CorruptFileError(
                    f"{self.path} does not have the columns of an embeddings file of this version; embed again"
                )
        except (pa.ArrowException, OSError) as error:
            self._handle.close()
            raise CorruptFileError(f"{self.path} cannot be read as Parquet ({_line(error)})") from None
        except MaskconError:
            self._handle.close()
            raise
        self.group_count: int = self._file.num_row_groups

    def __len__(self) -> int:
        return int(self._file.metadata.num_rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._handle.close()

    def group(self, number: int) -> Embeddings:
        """Rows of one group."""
        try:
            table = self._file.read_row_group(number)
            vectors = table.column("vector").combine_chunks()
            if table.column("path").null_count or vectors.null_count or vectors.flatten().null_count:
                raise CorruptFileError(f"{self.path} has rows without path or vector; embed again")
            values = vectors.flatten().to_numpy(zero_copy_only=False)
            return Embeddings(
                paths=tuple(table.column("path").to_pylist()),
                coarse=tuple(table.column("coarse").to_pylist()),
                stamps=tuple(table.column("stamp").to_pylist()),
                vectors=values.reshape(-1, self.facts.features),
                facts=self.facts,
            )
        except (pa.ArrowException, OSError, ValueError) as error:
            raise CorruptFileError(f"{self.path} cannot be read as Parquet ({_line(error)})") from None

    def groups(self) -> Iterator[Embeddings]:
        for number in range(self.group_count):
            yield self.group(number)

    def names(self) -> Iterator[tuple[list[str], list[str | None], list[str]]]:
        """Paths, labels and stamps of each group, without the vectors."""
        for number in range(self.group_count):
            columns = self._file.read_row_group(number, columns=["path", "coarse", "stamp"])
            yield tuple(columns.column(name).to_pylist() for name in ("path", "coarse", "stamp"))


class EmbeddingsWriter:
    """Writes groups of rows to a temporary name; `finish` seals, syncs and renames. Left early, nothing is there."""

    def __init__(self, path: Path, facts: Facts) -> None:
        self.path, self.facts = path, facts
        self._temporary = path.with_name(f".{path.name}.tmp")
        try:
            self._handle = self._temporary.open("w+b")
        except OSError as error:
            raise _not_written(path, error) from error
        self._writer = pq.ParquetWriter(
            self._handle,
            _schema(facts.features),
            use_dictionary=["coarse"],
            compression={"path": "zstd", "coarse": "zstd", "stamp": "zstd", "vector.list.element": "none"},
        )

    def add(
        self, paths: list[str], coarse: list[str | None], stamps: list[str], vectors: NDArray[np.float32]
    ) -> None:
        """One group of rows; vectors: [len(paths), F]."""
        flat = pa.array(np.ascontiguousarray(vectors, dtype=np.float32).reshape(-1), pa.float32())
        columns = [
            pa.array(paths, pa.string()),
            pa.array(coarse, pa.string()),
            pa.array(stamps, pa.string()),
            pa.FixedSizeListArray.from_arrays(flat, self.facts.features),
        ]
        table = pa.Table.from_arrays(columns, schema=_schema(self.facts.features))
        self._writer.write_table(table, row_group_size=max(1, len(paths)))

    def finish(self) -> None:
        self._writer.add_key_value_metadata(
            {FACTS_KEY: json.dumps(asdict(self.facts), sort_keys=True), SEAL_KEY: (SEAL + UNSEALED).decode()}
        )
        self._writer.close()
        place = _seal_place(self._handle, self._temporary)
        digest = _digest(self._handle, place)
        self._handle.seek(place)
        self._handle.write(digest)
        sync_file(self._handle)
        self._handle.close()
        self._temporary.replace(self.path)
        sync_folder(self.path.parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.finish()
        except OSError as failure:
            raise _not_written(self.path, failure) from failure
        finally:
            self._abandon()
            self._temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _not_written(self.path, error) from error

    def _abandon(self) -> None:
        """Let go of what is still open; a full disk is no matter any more, since the file goes."""
        with contextlib.suppress(OSError):
            self._writer.close()
        with contextlib.suppress(OSError):
            self._handle.close()


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise UsageError(f"no embeddings at {path}; make them with `maskcon embed`") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None


def _check_seal(file: BinaryIO, path: Path) -> None:
    """Refuse a file that is not what was written, byte for byte."""
    place = _seal_place(file, path)
    written = file.read(len(UNSEALED))
    if written != _digest(file, place):
        raise CorruptFileError(f"{path} does not match its checksum: it was changed or damaged; embed again")


def _seal_place(file: BinaryIO, path: Path) -> int:
    """Where the 64 digits are; the file is left standing there."""
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
    """sha256 of the file, in hex, with zeros for the digits at `place`."""
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


def _schema(features: int) -> Any:
    return pa.schema(
        [
            pa.field("path", pa.string()),
            pa.field("coarse", pa.string()),
            pa.field("stamp", pa.string()),
            pa.field("vector", pa.list_(pa.float32(), features)),
        ]
    )


def _read_facts(metadata: dict[bytes, bytes] | None, path: Path) -> Facts:
    try:
        values = json.loads((metadata or {})[FACTS_KEY.encode()])
        if values["format"] != FORMAT or set(values) != {field.name for field in fields(Facts)}:
            raise ValueError("format")
        return Facts(**values)
    except (KeyError, ValueError, TypeError):
        raise CorruptFileError(f"{path} comes from another version of maskcon; embed again") from None


def _not_written(path: Path, error: OSError) -> MaskconError:
    return MaskconError(
        f"could not write {path}: {error.strerror or _line(error)}. Make room and run the same command again"
    )


def _line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]

"""The embeddings file: Parquet, with facts about the model in its footer and a checksum over every byte.

Columns: `path`, `coarse` (label, null if unknown), `stamp` (size;mtime_ns), `digest` (sha256 of the content; absent in
files of format 1), `vector` (float32, as `Run.encode` gives it: not normalised). Any Parquet reader can read it.

The footer holds `maskcon` (the facts, JSON) and `maskcon.seal` (SEAL and 64 hex digits). The digits are the sha256 of
the whole file with zeros in their place: any changed, missing or added byte is noticed before anything is parsed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
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
FORMAT = 2
COLUMNS = ("path", "coarse", "stamp", "digest", "vector.list.element")  # as Parquet names them
FORMATS = (1, 2)  # that can be read; 1 has no column `digest`


@dataclass(frozen=True)
class Facts:
    """Which encoder embedded which images, and how.

    Attributes:
        encoder_sha256: of the run's encoder.safetensors; vectors are comparable if it is equal.
        source: what the images can be found by, from any directory.
        root: folder that paths are relative to; None if the images are not files.
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


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Rows of an embeddings file: N paths, labels, stamps, digests (None: unknown), vectors float32 [N, F]."""

    paths: tuple[str, ...]
    coarse: tuple[str | None, ...]
    stamps: tuple[str, ...]
    digests: tuple[str | None, ...]
    vectors: NDArray[np.float32]
    facts: Facts

    def __len__(self) -> int:
        return len(self.paths)

    def file(self, row: int) -> Path:
        """Full path of the image of this row."""
        if self.facts.root is None:
            raise UsageError(f"{self.paths[row]} of {self.facts.source} is not a file")
        return Path(self.facts.root) / self.paths[row]


def read_embeddings(path: str | Path) -> Embeddings:
    """Read all rows of an embeddings file; a truncated, changed or foreign one is refused.

    Example:
        >>> found = read_embeddings("embeddings.parquet")  # doctest: +SKIP
        >>> found.paths[0], found.coarse[0], found.vectors.shape  # doctest: +SKIP
        ('cat/1.jpg', 'cat', (2000, 512))
    """
    with EmbeddingsFile(path) as file:
        empty = np.empty((0, file.facts.features), np.float32)
        vectors = np.concatenate([empty, *(file.vectors(number) for number in range(file.group_count))])
        return Embeddings(**file.columns(), vectors=vectors, facts=file.facts)


class EmbeddingsFile:
    """An embeddings file, checked and open, whose vectors are read by row group."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        # opened once: pyarrow takes some paths for URLs, and what was checked must be what is read
        self._handle = _opened(self.path)
        try:
            _check_seal(self._handle, self.path)
            self._file = pq.ParquetFile(self._handle)
            self.facts = _read_facts(self._file.metadata.metadata, self.path)
            if not self._file.schema_arrow.equals(_schema(self.facts), check_metadata=False):
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

    def columns(self) -> dict[str, tuple[Any, ...]]:
        """Read paths, coarse, stamps and digests of all rows, without the vectors."""
        names = {"paths": "path", "coarse": "coarse", "stamps": "stamp", "digests": "digest"}
        with self._readable():
            table = self._file.read(columns=["path", "coarse", "stamp", "digest"])  # those that are there
            if table.column("path").null_count:
                raise CorruptFileError(f"{self.path} has rows without a path; embed again")
            there = {key: name for key, name in names.items() if name in table.column_names}
            found = {key: tuple(table.column(name).to_pylist()) for key, name in there.items()}
        return {"digests": (None,) * len(self), **found}

    def group_rows(self) -> list[int]:
        """Number of rows of each group."""
        return [self._file.metadata.row_group(number).num_rows for number in range(self.group_count)]

    def vectors(self, number: int) -> NDArray[np.float32]:
        """Read the vectors of one row group."""
        with self._readable():
            column = self._file.read_row_group(number, columns=["vector"]).column("vector").combine_chunks()
            if column.null_count or column.flatten().null_count:
                raise CorruptFileError(f"{self.path} has rows without a vector; embed again")
            values: NDArray[np.float32] = column.flatten().to_numpy(zero_copy_only=False)
            return values.reshape(-1, self.facts.features)

    @contextlib.contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError, ValueError) as error:
            if isinstance(error, MaskconError):
                raise
            raise CorruptFileError(f"{self.path} cannot be read as Parquet ({_line(error)})") from None


class EmbeddingsWriter:
    """Writes row groups under a temporary name, then seals, syncs and renames; on an error nothing is left."""

    def __init__(self, path: Path, facts: Facts) -> None:
        self.path, self.facts = path, facts
        self._temporary = path.with_name(f".{path.name}.tmp")
        try:
            self._handle = self._temporary.open("w+b")
        except OSError as error:
            raise _not_written(path, error) from error
        self._writer = pq.ParquetWriter(
            self._handle,
            _schema(facts),
            use_dictionary=["coarse"],
            compression={name: "none" if name.startswith("vector") else "zstd" for name in COLUMNS},
        )

    def add(
        self,
        paths: Sequence[str],
        coarse: Sequence[str | None],
        stamps: Sequence[str],
        digests: Sequence[str | None],
        vectors: NDArray[np.float32],
    ) -> None:
        """Write one row group; vectors: [len(paths), F]."""
        flat = pa.array(np.ascontiguousarray(vectors, dtype=np.float32).reshape(-1), pa.float32())
        texts = [pa.array(values, pa.string()) for values in (paths, coarse, stamps, digests)]
        schema = _schema(self.facts)
        columns = [*texts[: len(schema) - 1], pa.FixedSizeListArray.from_arrays(flat, self.facts.features)]
        table = pa.Table.from_arrays(columns, schema=schema)
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
        """Close what is still open; write errors no longer matter, since the file is deleted."""
        with contextlib.suppress(OSError):
            self._writer.close()
        with contextlib.suppress(OSError):
            self._handle.close()


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise UsageError(f"no embeddings at {path}; write them with `maskcon embed`") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None


def _check_seal(file: BinaryIO, path: Path) -> None:
    """Refuse a file whose bytes do not match its checksum."""
    place = _seal_place(file, path)
    written = file.read(len(UNSEALED))
    if written != _digest(file, place):
        raise CorruptFileError(f"{path} does not match its checksum: it was changed or damaged; embed again")


def _seal_place(file: BinaryIO, path: Path) -> int:
    """Find the 64 digits; the file is positioned there."""
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


def _schema(facts: Facts) -> Any:
    texts = ("path", "coarse", "stamp", "digest")[: 3 if facts.format == 1 else 4]
    vector = pa.field("vector", pa.list_(pa.float32(), facts.features))
    return pa.schema([*(pa.field(name, pa.string()) for name in texts), vector])


def _read_facts(metadata: dict[bytes, bytes] | None, path: Path) -> Facts:
    try:
        values = json.loads((metadata or {})[FACTS_KEY.encode()])
        if values["format"] not in FORMATS or set(values) != {field.name for field in fields(Facts)}:
            raise ValueError("format")
        return Facts(**values)
    except (KeyError, ValueError, TypeError):
        raise CorruptFileError(f"{path} comes from another version of maskcon; embed again") from None


def _not_written(path: Path, error: OSError) -> MaskconError:
    return MaskconError(
        f"could not write {path}: {error.strerror or _line(error)}. Free some space and run the same command again"
    )


def _line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]

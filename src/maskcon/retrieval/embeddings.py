"""The embeddings file as a store of `refresh`: written in parts, resumed after a kill, complete or not there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import CorruptFileError, UsageError
from maskcon.data.image_readers import Block, Images, Stamp
from maskcon.retrieval.embeddings_file import EmbeddingsFile, EmbeddingsWriter, Facts
from maskcon.retrieval.index_file import Parts, VectorSource, collect
from maskcon.retrieval.store import Entry, Header, Vectors

OTHER_FORMATS = frozenset(  # a Parquet file with such a name would mislead readers
    (".csv", ".tsv", ".txt", ".json", ".jsonl", ".npy", ".npz", ".pkl", ".pt", ".h5", ".xlsx")
)
GROUP_ROWS = 1024  # of the finished file
CACHED_GROUPS = 8  # row groups of the previous file kept in memory while the new one is written
COLUMNS = ("paths", "stamps", "digests", "coarse")
WITHOUT_DIGEST = "stamp:"  # begins the key of rows of format 1, whose content was not hashed


def check_target(target: Path) -> None:
    """Refuse names that cannot or should not become an embeddings file."""
    if target.is_dir():
        raise UsageError(
            f"{target} is a folder; give a file to write, such as {target / 'embeddings.parquet'}"
        )
    if target.suffix.lower() in OTHER_FORMATS:
        raise UsageError(
            f"embeddings are written as Parquet, which the name {target.name} does not say; name it "
            f"{target.with_suffix('.parquet').name}. Then pandas.read_parquet(...) reads it, and can convert it"
        )


class EmbeddingsStore:
    """See `Store`. Unfinished parts are kept in `.NAME.parts/` beside the file, which the caller locks.

    Rows keep the order and the labels of the source. A target that is not an embeddings file is refused.
    """

    is_normalised = False

    def __init__(self, path: Path, facts: Facts) -> None:
        self.path, self.facts = path, facts
        self.owner: Header | None = Header(facts.encoder_sha256, facts.source, facts.root or "")
        self.parts = Parts(parts_folder(path), self.owner)
        self.notes = self.parts.notes
        self._previous: _Previous | None = None
        if path.exists():
            try:
                self._previous = _Previous(EmbeddingsFile(path))
            except CorruptFileError as error:
                raise UsageError(f"{error}; it was not changed: delete it, or choose another --out") from None

    def header(self) -> Header | None:
        if self._previous is None:
            return None
        facts = self._previous.file.facts
        return Header(facts.encoder_sha256, facts.source, facts.root or "")

    def entries(self) -> Sequence[Entry]:
        return [] if self._previous is None else self._previous.entries

    def arrange(self, entries: Sequence[Entry]) -> list[Entry]:
        return list(entries)

    def known(self) -> set[str]:
        return {entry.digest for entry in self.entries()} | self.parts.digests()

    def stage(self, digests: Sequence[str], vectors: Vectors) -> None:
        self.parts.add(digests, vectors)

    def commit(self, entries: Sequence[Entry]) -> None:
        sources: list[VectorSource] = [*self.parts.files()]
        if self._previous is not None:
            sources.insert(0, self._previous)
        keys = [entry.digest for entry in entries]
        with EmbeddingsWriter(self.path, self.facts) as writer:
            for number, block in enumerate(collect(sources, keys, self.facts.features, GROUP_ROWS)):
                part = entries[number * GROUP_ROWS : (number + 1) * GROUP_ROWS]
                writer.add(
                    [entry.path for entry in part],
                    [entry.coarse for entry in part],
                    [_stamp(entry) for entry in part],
                    [None if entry.digest.startswith(WITHOUT_DIGEST) else entry.digest for entry in part],
                    block,
                )

    def tidy(self) -> None:
        self.parts.remove()

    def forget(self) -> None:
        self.close()
        self._previous = None

    def close(self) -> None:
        """Close the previous file."""
        if self._previous is not None:
            self._previous.file.close()


def parts_folder(target: Path) -> Path:
    """Folder of the unfinished parts of an embeddings file."""
    return target.with_name(f".{target.name}.parts")


def remove_empty_parts(target: Path) -> None:
    """Leave nothing behind if a command failed before its first part."""
    if not any(parts_folder(target).glob("*.part")):
        shutil.rmtree(parts_folder(target), ignore_errors=True)


class _Previous:
    """Entries and vectors of the file that an earlier command wrote."""

    def __init__(self, file: EmbeddingsFile) -> None:
        self.file = file
        columns = file.columns()
        self.entries: list[Entry] = []
        for path, stamp, digest, coarse in zip(*(columns[name] for name in COLUMNS), strict=True):
            size, mtime_ns = stamp.split(";")
            key = digest or f"{WITHOUT_DIGEST}{stamp};{path}"
            self.entries.append(Entry(path, int(size), int(mtime_ns), key, coarse))
        self._starts = np.cumsum([0, *file.group_rows()])
        self._group = lru_cache(CACHED_GROUPS)(file.vectors)

    def digests(self) -> Iterable[str]:
        return (entry.digest for entry in self.entries)

    def take(self, rows: NDArray[np.int64]) -> Vectors:
        found = np.empty((len(rows), self.file.facts.features), dtype=np.float32)
        groups = np.searchsorted(self._starts, rows, side="right") - 1
        for group in np.unique(groups).tolist():
            here = groups == group
            found[here] = self._group(group)[rows[here] - self._starts[group]]
        return found


def _stamp(entry: Entry) -> str:
    return f"{entry.size};{entry.mtime_ns}"


class TextNames:
    """Images with names that a table can hold (see `Images`); of two that become equal, the second is left out."""

    def __init__(self, images: Images) -> None:
        self._images = images
        self.source, self.root, self.empty, self.notes = (
            images.source,
            images.root,
            images.empty,
            images.notes,
        )
        self.unreadable = {text(path): why for path, why in images.unreadable.items()}
        places: dict[str, int] = {}  # path -> row of the original
        for place, path in enumerate(map(text, images.paths)):
            if path in places:  # one has a byte that is not UTF-8, the other has it spelled out
                self.unreadable[path] = "another file has this name, once written as text"
            else:
                places[path] = place
        labels, stamps = images.coarse, images.stamps
        self.paths, self._places = list(places), list(places.values())
        self.coarse = [
            None if label is None else text(label) for label in (labels[place] for place in self._places)
        ]
        self.stamps: list[Stamp] = [stamps[place] for place in self._places]
        self.image_bytes = images.image_bytes

    def digests(self, rows: Sequence[int]) -> list[str | None]:
        return self._images.digests([self._places[row] for row in rows])

    def read(self, rows: Sequence[int]) -> Block:
        row_of = {self._places[row]: row for row in rows}
        block = self._images.read(list(row_of))
        failures = {row_of[place]: why for place, why in block.failures.items()}
        return Block(block.images, block.sizes, [row_of[place] for place in block.rows], failures)


def text(name: str) -> str:
    """Write a file name as valid text; bytes that are not UTF-8 become \\xNN.

    >>> text(os.fsdecode(b"caf\\xe9"))
    'caf\\\\xe9'
    """
    return os.fsencode(name).decode("utf-8", errors="backslashreplace")

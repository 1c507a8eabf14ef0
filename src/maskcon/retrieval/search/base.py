"""What an index holds, and what a place to keep one must be able to do.

Vectors are known by the content they were computed from: a renamed file, or the same picture twice, is embedded once.
Letters in shapes: N pictures, D dimension of an embedding, Q queries.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import UsageError

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Entry:
    """One picture of an index.

    path: below the source's root, with `/`; bytes that are no UTF-8 as Python's file functions give them
    size, mtime_ns: by which a file is taken to be unchanged without reading it
    digest: sha256 (hex) of its content
    """

    path: str
    size: int
    mtime_ns: int
    digest: str


@dataclass(frozen=True)
class Header:
    """Whose index it is: sha256 (hex) of the encoder's file, and the source (a name, or a folder's full path).

    root: the folder that the paths start from; "" where the pictures are no files
    """

    encoder: str
    source: str
    root: str = ""

    @property
    def where(self) -> str:
        """What paths are below: under another root, or of another source that is no files, they name others."""
        return self.root or self.source

    def full_path(self, entry: Entry) -> str:
        """Where a picture is; its name, where it is no file."""
        return str(Path(self.root) / entry.path) if self.root else entry.path


@dataclass(frozen=True)
class Neighbours:
    """The nearest pictures of Q queries, best first; equal scores in the order of the index.

    entries[q][rank], and scores [Q, k], cosines; k is cut to the size of the index
    how: "exact", or a line that says what was searched instead and how well
    """

    entries: list[list[Entry]]
    scores: NDArray[np.float64]
    how: str = "exact"


class Store(Protocol):
    """A place for one index. What `stage` was given outlives a kill; `commit` shows all of it at once or nothing.

    owner: what the header is to be after a commit; None where nothing is to be written
    """

    owner: Header | None

    def header(self) -> Header | None:
        """None where there is no index yet."""
        ...

    def entries(self) -> Sequence[Entry]:
        """What the last commit left, in the order of the index."""
        ...

    def known(self) -> set[str]:
        """Digests of which a vector is here, committed or staged by an earlier try."""
        ...

    def stage(self, digests: Sequence[str], vectors: Vectors) -> None:
        """Keep vectors [n, D] for the commit to come."""
        ...

    def commit(self, entries: Sequence[Entry]) -> None:
        """Make the index hold exactly these, each with the vector of its digest."""
        ...

    def tidy(self) -> None:
        """Drop what was staged: the index is as it should be."""
        ...

    def forget(self) -> None:
        """Take nothing over from the index that is here: it is of another model, or damaged."""
        ...

    def search(self, queries: Vectors, k: int) -> Neighbours:
        """The k nearest to unit vectors [Q, D]."""
        ...


def in_order(entries: Sequence[Entry]) -> list[Entry]:
    """By the bytes of their paths: the order of every index, wherever it is kept."""
    return sorted(entries, key=lambda entry: os.fsencode(entry.path))


def check_owner(found: Header | None, wanted_encoder: str, where: str) -> Header:
    """The header, if it is an index of this very encoder."""
    if found is None:
        raise UsageError(f"there is no index in {where}; build one with `maskcon index RUN SOURCE`")
    if found.encoder != wanted_encoder:
        raise UsageError(
            f"the index in {where} was made with another model (encoder {found.encoder[:12]}, this run's is "
            f"{wanted_encoder[:12]}); use that run, or make it anew with `maskcon index RUN SOURCE --replace`"
        )
    return found


def check_request(queries: Vectors, k: int, dimension: int) -> None:
    """Refuse what no store can answer."""
    if k < 1:
        raise UsageError(f"k must be at least 1, got {k}")
    if queries.ndim != 2 or queries.shape[1] != dimension:
        raise UsageError(f"queries must be [Q, {dimension}] as the index, got {list(queries.shape)}")

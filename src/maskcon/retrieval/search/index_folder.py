"""An index in a folder: one file that searches read, and parts of one that is being made.

    index.maskcon          all pictures (see `index_file`)
    parts/00000001.part    vectors computed since, until they are merged into it
    hnsw.maskcon           a graph for approximate search, where it is large (see `approximate`)

A kill costs the vectors since the last part; the index that was there is whole and searchable throughout.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from maskcon._utils.errors import MaskconError, UsageError
from maskcon.data.packing import Progress
from maskcon.retrieval.search.base import Entry, Header, Neighbours, Vectors, check_request
from maskcon.retrieval.search.exact import nearest_exact
from maskcon.retrieval.search.faiss_index import GRAPH, Graph, build_graph, read_graph
from maskcon.retrieval.search.index_file import IndexFile, gathered, read_index, write_index

INDEX, PARTS = "index.maskcon", "parts"


class FolderStore:
    """See `Store`. owner: whose index is to be written here; only needed to stage and commit."""

    def __init__(self, folder: Path, owner: Header | None = None) -> None:
        self.folder = folder
        self.owner = owner
        self.notes: list[str] = []
        self._index: IndexFile | None = None
        self._ignore_index = False
        self._parts: list[IndexFile] | None = None
        self._graph: Graph | None = None

    @property
    def path(self) -> Path:
        return self.folder / INDEX

    def index(self) -> IndexFile | None:
        """The file, checked once and then kept open."""
        if self._index is None and not self._ignore_index and self.path.exists():
            self._index = read_index(self.path)
        return self._index

    def header(self) -> Header | None:
        index = self.index()
        return None if index is None else index.header

    def entries(self) -> Sequence[Entry]:
        index = self.index()
        return [] if index is None else index.entries

    def known(self) -> set[str]:
        digests = {entry.digest for entry in self.entries()}
        return digests.union(*({entry.digest for entry in part.entries} for part in self._usable_parts()))

    def stage(self, digests: Sequence[str], vectors: Vectors) -> None:
        parts = self._usable_parts()
        number = 1 + max((int(part.path.stem) for part in parts), default=0)
        path = self.folder / PARTS / f"{number:08d}.part"
        entries = [Entry("", 0, 0, digest) for digest in digests]
        write_index(path, self._owner(), entries, vectors.shape[1], [vectors])
        parts.append(read_index(path))

    def commit(self, entries: Sequence[Entry]) -> None:
        files = [file for file in (self.index(), *self._usable_parts()) if file is not None]
        place_of = {
            entry.digest: (number, row)
            for number, file in enumerate(files)
            for row, entry in enumerate(file.entries)
        }
        places = np.array([place_of[entry.digest] for entry in entries], dtype=np.int64).reshape(-1, 2)
        dimensions = {file.vectors.shape[1] for file in files if len(file.entries)}
        if len(dimensions) > 1:
            raise MaskconError(f"{self.folder} holds vectors of {sorted(dimensions)} numbers; use --replace")
        dimension = dimensions.pop() if dimensions else 0

        def vectors_at(rows: Sequence[int]) -> Vectors:
            block = np.empty((len(rows), dimension), dtype=np.float32)
            chosen = places[rows[0] : rows[-1] + 1]
            for number in np.unique(chosen[:, 0]).tolist():
                here = chosen[:, 0] == number
                block[here] = files[number].vectors[chosen[here, 1]]
            return block

        write_index(self.path, self._owner(), entries, dimension, gathered(vectors_at, len(entries)))
        self._index, self._ignore_index = None, False

    def tidy(self) -> None:
        self._parts = []
        shutil.rmtree(self.folder / PARTS, ignore_errors=True)

    def forget(self) -> None:
        self._index, self._ignore_index = None, True  # parts stay: those of another model are never used

    def search(self, queries: Vectors, k: int) -> Neighbours:
        """Exact, unless `use_graph` found one."""
        index = self.index()
        if index is None:
            raise UsageError(f"there is no index in {self.folder}; build one with `maskcon index RUN SOURCE`")
        if not index.entries:
            return Neighbours([[] for _ in queries], np.empty((len(queries), 0)))
        check_request(queries, k, index.vectors.shape[1])
        if self._graph is not None:
            positions, scores = self._graph.nearest(index.vectors, queries, k)
            how = self._graph.told
        else:
            positions, scores = nearest_exact(index.vectors, queries, k)
            how = "exact"
        return Neighbours([[index.entries[row] for row in rows] for rows in positions.tolist()], scores, how)

    def has_graph(self) -> bool:
        """Is there a graph, of this index or of one before it?"""
        return (self.folder / GRAPH).exists()

    def make_graph(self, progress: Progress | None = None) -> str:
        """Build the graph of the index, unless there is one of it as it is now; a line on how well it finds."""
        index = self.index()
        if index is None:
            raise UsageError(f"there is no index in {self.folder}")
        path = self.folder / GRAPH
        try:
            return read_graph(path, index).told
        except MaskconError:  # none, damaged, or of the index before, which stays until there is a new one
            return build_graph(path, index, progress).told

    def use_graph(self) -> None:
        """Search by the graph from now on; one that is damaged or of another index is refused."""
        index = self.index()
        if index is not None:
            self._graph = read_graph(self.folder / GRAPH, index)

    def _owner(self) -> Header:
        if self.owner is None:
            raise UsageError("this store was opened to read; give it an owner to write")
        return self.owner

    def _usable_parts(self) -> list[IndexFile]:
        """Parts that an earlier try left, whole and of this encoder; others go."""
        if self._parts is not None:
            return self._parts
        encoder = self._owner().encoder
        self._parts = []
        for path in sorted((self.folder / PARTS).glob("*.part")):
            try:
                part = read_index(path)
                if part.header.encoder == encoder and path.stem.isdecimal():
                    self._parts.append(part)
                    continue
                self.notes.append(f"{path.name} is of another model and was removed")
            except MaskconError:
                self.notes.append(
                    f"{path.name} of an earlier try is damaged; its pictures are embedded again"
                )
            path.unlink(missing_ok=True)
        return self._parts

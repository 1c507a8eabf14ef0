"""An index in a folder.

    index.maskcon          all images (see `index_file`)
    parts/00000001.part    vectors computed since, until they are merged into the index
    hnsw.maskcon           a graph for approximate search of a large index (see `faiss_index`)

A kill costs the vectors since the last part; the previous index stays complete and searchable throughout.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from maskcon._utils.errors import MaskconError, UsageError
from maskcon.data.packing import Progress
from maskcon.retrieval.faiss_index import GRAPH, Graph, build_graph, read_graph
from maskcon.retrieval.index_file import IndexFile, Parts, collect, read_index, write_index
from maskcon.retrieval.nearest import nearest
from maskcon.retrieval.store import Entry, Header, Neighbours, Vectors, arrange_by_path, check_request

INDEX, PARTS = "index.maskcon", "parts"


class FolderStore:
    """See `Store`; owner is only needed to write."""

    is_normalised = True

    def __init__(self, folder: Path, owner: Header | None = None) -> None:
        self.folder = folder
        self.owner = owner
        self.parts = Parts(folder / PARTS, owner)
        self.notes = self.parts.notes
        self._index: IndexFile | None = None
        self._ignore_index = False
        self._graph: Graph | None = None

    @property
    def path(self) -> Path:
        return self.folder / INDEX

    def index(self) -> IndexFile | None:
        """Open and check the file once."""
        if self._index is None and not self._ignore_index and self.path.exists():
            self._index = read_index(self.path)
        return self._index

    def header(self) -> Header | None:
        index = self.index()
        return None if index is None else index.header

    def entries(self) -> Sequence[Entry]:
        index = self.index()
        return [] if index is None else index.entries

    def arrange(self, entries: Sequence[Entry]) -> list[Entry]:
        return arrange_by_path(entries)

    def known(self) -> set[str]:
        return {entry.digest for entry in self.entries()} | self.parts.digests()

    def stage(self, digests: Sequence[str], vectors: Vectors) -> None:
        self.parts.add(digests, vectors)

    def commit(self, entries: Sequence[Entry]) -> None:
        files = [file for file in (self.index(), *self.parts.files()) if file is not None]
        dimensions = {file.vectors.shape[1] for file in files if len(file.entries)}
        if len(dimensions) > 1:
            raise MaskconError(f"{self.folder} holds vectors of lengths {sorted(dimensions)}; use --replace")
        dimension = dimensions.pop() if dimensions else 0
        blocks = collect(files, [entry.digest for entry in entries], dimension)
        assert self.owner is not None  # `files` asked for it
        write_index(self.path, self.owner, entries, dimension, blocks)
        self._index, self._ignore_index = None, False

    def tidy(self) -> None:
        self.parts.remove()

    def forget(self) -> None:
        self._index, self._ignore_index = None, True  # parts stay: only those of this encoder are used

    def search(self, queries: Vectors, k: int) -> Neighbours:
        """Find the k nearest to unit vectors [Q, D]; exact, unless `use_graph` was called."""
        index = self.index()
        if index is None:
            raise UsageError(f"there is no index in {self.folder}; build one with `maskcon index RUN SOURCE`")
        if not index.entries:
            return Neighbours([[] for _ in queries], np.empty((len(queries), 0)))
        check_request(queries, k, index.vectors.shape[1])
        if self._graph is not None:
            positions, scores = self._graph.nearest(index.vectors, queries, k)
            how = self._graph.description
        else:
            positions, scores = nearest(index.vectors, queries, k)
            how = "exact"
        return Neighbours([[index.entries[row] for row in rows] for rows in positions.tolist()], scores, how)

    def has_graph(self) -> bool:
        """Is there a graph, of this or of an earlier state of the index?"""
        return (self.folder / GRAPH).exists()

    def make_graph(self, progress: Progress | None = None) -> str:
        """Build the graph unless it is up to date; return a line with its recall."""
        index = self.index()
        if index is None:
            raise UsageError(f"there is no index in {self.folder}")
        path = self.folder / GRAPH
        try:
            return read_graph(path, index).description
        except MaskconError:  # absent, damaged or outdated; an outdated one stays until it can be replaced
            return build_graph(path, index, progress).description

    def use_graph(self) -> None:
        """Search by the graph from now on; a damaged or outdated one is refused."""
        index = self.index()
        if index is not None:
            self._graph = read_graph(self.folder / GRAPH, index)

"""An index in a folder: an embeddings file to search, and perhaps a graph for approximate search.

index.parquet    all images (see `embeddings_file`)
hnsw.maskcon     a graph for approximate search of a large index (see `faiss_index`)
"""

from __future__ import annotations

from pathlib import Path

from maskcon._utils.errors import MaskconError, UsageError
from maskcon.data.packing import Progress
from maskcon.retrieval.embeddings import EmbeddingsStore
from maskcon.retrieval.embeddings_file import read_embeddings
from maskcon.retrieval.faiss_index import GRAPH, Graph, build_graph, read_graph
from maskcon.retrieval.nearest import make_unit_rows, nearest
from maskcon.retrieval.store import Header, Neighbours, Vectors, check_request

INDEX = "index.parquet"
OLD_INDEX = "index.maskcon"  # up to version 0.1


def index_store(folder: Path, owner: Header) -> EmbeddingsStore:
    """Open the index of a folder for `refresh`."""
    store = EmbeddingsStore(folder / INDEX, owner)
    if (folder / OLD_INDEX).exists():
        store.notes.append(f"{folder / OLD_INDEX} of an older version is not used any more; delete it")
    return store


def has_graph(folder: Path) -> bool:
    """Is there a graph, of this or of an earlier state of the index?"""
    return (folder / GRAPH).exists()


class Index:
    """An index in memory, its vectors scaled to length 1.

    Attributes:
        header, entries: see `Embeddings`.
        vectors: float32 [N, D].
    """

    def __init__(self, folder: Path) -> None:
        if not (folder / INDEX).exists():
            kind = "only an index of an older version" if (folder / OLD_INDEX).exists() else "no index"
            raise UsageError(f"there is {kind} in {folder}; build one with `maskcon index RUN SOURCE`")
        found = read_embeddings(folder / INDEX)
        self.header, self.entries, self.vectors = found.header, found.entries, found.vectors
        make_unit_rows(self.vectors)
        self._digest, self._path = found.digest, folder / GRAPH
        self._graph: Graph | None = None

    def search(self, queries: Vectors, k: int) -> Neighbours:
        """Find the k nearest to unit vectors [Q, D]; exact, unless `use_graph` was called."""
        check_request(queries, k, self.vectors.shape[1])
        if self._graph is not None:
            positions, scores = self._graph.nearest(self.vectors, queries, k)
            how = self._graph.description
        else:
            positions, scores = nearest(self.vectors, queries, k)
            how = "exact"
        return Neighbours([[self.entries[row] for row in rows] for rows in positions.tolist()], scores, how)

    def make_graph(self, progress: Progress | None = None) -> str:
        """Build the graph unless it is up to date; return a line with its recall."""
        try:
            return read_graph(self._path, self._digest).description
        except MaskconError:  # absent, damaged or outdated; an outdated one stays until it can be replaced
            return build_graph(self._path, self.vectors, self._digest, progress).description

    def use_graph(self) -> None:
        """Search by the graph from now on; a damaged or outdated one is refused."""
        self._graph = read_graph(self._path, self._digest)

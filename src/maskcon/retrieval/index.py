"""An index in a folder: an embeddings file to search exactly."""

from __future__ import annotations

from pathlib import Path

from maskcon._utils.errors import UsageError
from maskcon.retrieval.embeddings import EmbeddingsStore
from maskcon.retrieval.embeddings_file import read_embeddings
from maskcon.retrieval.nearest import make_unit_rows, nearest
from maskcon.retrieval.store import Header, Neighbours, Vectors, check_request

INDEX = "index.parquet"
EARLIER = ("index.maskcon", "hnsw.maskcon")  # files of earlier versions


def index_store(folder: Path, owner: Header) -> EmbeddingsStore:
    """Open the index of a folder for `refresh`."""
    store = EmbeddingsStore(folder / INDEX, owner)
    found = [str(folder / name) for name in EARLIER if (folder / name).exists()]
    store.notes += [f"{path} of an older version is not used any more; delete it" for path in found]
    return store


class Index:
    """An index in memory, its vectors scaled to length 1.

    Attributes:
        header, entries: see `Embeddings`.
        vectors: float32 [N, D].
    """

    def __init__(self, folder: Path) -> None:
        if not (folder / INDEX).exists():
            kind = "only an index of an older version" if (folder / EARLIER[0]).exists() else "no index"
            raise UsageError(f"there is {kind} in {folder}; build one with `maskcon index RUN SOURCE`")
        found = read_embeddings(folder / INDEX)
        self.header, self.entries, self.vectors = found.header, found.entries, found.vectors
        make_unit_rows(self.vectors)

    def search(self, queries: Vectors, k: int) -> Neighbours:
        """Find the k nearest to unit vectors [Q, D] by cosine."""
        check_request(queries, k, self.vectors.shape[1])
        positions, scores = nearest(self.vectors, queries, k)
        return Neighbours([[self.entries[row] for row in rows] for rows in positions.tolist()], scores)

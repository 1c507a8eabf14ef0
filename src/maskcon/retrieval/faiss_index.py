"""Approximate search of large indexes by a faiss HNSW graph, whose recall is measured and stated.

The graph finds candidates; their scores are computed exactly from the stored vectors. A graph belongs to one state
of the index, whose checksum it holds, and is rebuilt after a refresh.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import CorruptFileError, MaskconError, UsageError
from maskcon._utils.files import write_atomically
from maskcon.data.packing import Progress
from maskcon.retrieval.nearest import best_of, nearest, unit_rows
from maskcon.retrieval.store import Vectors

GRAPH = "hnsw.maskcon"
CHECKSUM_BYTES = 32  # the file: sha256 of the rest, one line of JSON, the graph as faiss stores it
LARGE = 200_000  # images from which a graph is built by default: exact queries become slow
BUILD_ROWS = 4096  # added between two calls of progress
LINKS, BUILD_WIDTH = 32, 200  # neighbours per node, candidates examined when it is added
WIDTHS = (64, 128, 256, 512, 1024)  # candidates examined per query; the first with enough recall is used
WANTED_RECALL, RECALL_K, SAMPLE = 0.99, 10, 500
NOISE = 0.1  # distance of sample queries from a stored vector: new images are near others, not equal


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph in memory; recall: share of the 10 exact neighbours it finds for sample queries."""

    faiss_index: Any
    width: int
    recall: float
    sample: int

    @property
    def description(self) -> str:
        return f"HNSW, recall@{RECALL_K} {self.recall:.4f} against exact on {self.sample} sample queries"

    def nearest(
        self, vectors: Vectors, queries: NDArray[np.float32], k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Like `maskcon.retrieval.nearest.nearest`, among the graph's candidates."""
        k = min(k, len(vectors))
        width = max(self.width, 2 * k)
        parameters = _faiss().SearchParametersHNSW(efSearch=width)
        wanted = min(2 * k, len(vectors))
        _, found = self.faiss_index.search(np.ascontiguousarray(queries), wanted, params=parameters)
        positions = np.empty((len(queries), k), dtype=np.int64)
        scores = np.empty((len(queries), k), dtype=np.float64)
        for row, candidates in enumerate(found):  # [wanted], -1: none
            there = np.unique(candidates[candidates >= 0])
            if len(there) < k:  # parts of a graph may be unreachable; then search exactly
                positions[row], scores[row] = (
                    part[0] for part in nearest(vectors, queries[row : row + 1], k)
                )
            else:
                positions[row], scores[row] = best_of(vectors, queries[row], there, k)
        return positions, scores


def build_graph(path: Path, vectors: Vectors, index: str, progress: Progress | None = None) -> Graph:
    """Build the graph of unit vectors [N, D] and save it at `path`; too low a recall is an error, and nothing is saved.

    Args:
        index: checksum of the index file that the vectors come from.
        progress: called as progress(images added, total).
    """
    faiss = _faiss()
    count, dimension = vectors.shape
    built = faiss.IndexHNSWFlat(dimension, LINKS, faiss.METRIC_INNER_PRODUCT)
    built.hnsw.efConstruction = BUILD_WIDTH
    for start in range(0, count, BUILD_ROWS):
        built.add(vectors[start : start + BUILD_ROWS])
        if progress is not None:
            progress(min(start + BUILD_ROWS, count), count)
    queries = _sample_queries(vectors)
    k = min(RECALL_K, count)
    _, truth = nearest(vectors, queries, k)
    for width in WIDTHS:
        graph = Graph(built, width, 0.0, len(queries))
        _, scores = graph.nearest(vectors, queries, k)
        # by score, not by position: equal vectors are interchangeable
        recall = float((scores >= truth[:, -1:] - 1e-9).mean())
        if recall >= WANTED_RECALL:
            break
    else:
        path.unlink(missing_ok=True)  # the outdated graph
        raise MaskconError(
            f"the HNSW graph finds only {recall:.3f} of the {k} nearest, less than {WANTED_RECALL}; "
            "search stays exact (leave --hnsw off)"
        )
    described = {"index": index, "width": width, "recall": recall, "sample": len(queries)}
    head, content = json.dumps(described).encode() + b"\n", faiss.serialize_index(built)
    digest = hashlib.sha256(head)
    digest.update(content)
    write_atomically(path, digest.digest(), head, content)
    return Graph(built, width, recall, len(queries))


def read_graph(path: Path, index: str) -> Graph:
    """Read the graph of the index with this checksum; its bytes are checked before faiss sees them."""
    if not path.exists():
        raise UsageError(
            f"there is no HNSW graph in {path.parent}; build it with `maskcon index RUN SOURCE --hnsw`"
        )
    data = path.read_bytes()
    if hashlib.sha256(memoryview(data)[CHECKSUM_BYTES:]).digest() != data[:CHECKSUM_BYTES]:
        raise CorruptFileError(f"{path} is damaged or cut short; run `maskcon index RUN SOURCE --hnsw` again")
    end = data.index(b"\n", CHECKSUM_BYTES) + 1
    described = json.loads(data[CHECKSUM_BYTES:end])
    if described["index"] != index:
        raise UsageError(
            f"{path} belongs to another state of the index; run `maskcon index RUN SOURCE --hnsw` again"
        )
    built = _faiss().deserialize_index(np.frombuffer(data, dtype=np.uint8, offset=end))
    return Graph(built, described["width"], described["recall"], described["sample"])


def is_available() -> bool:
    """Is faiss installed?"""
    from importlib.util import find_spec

    return find_spec("faiss") is not None


def _sample_queries(vectors: Vectors) -> NDArray[np.float32]:
    """Draw unit vectors near stored ones, reproducibly."""
    generator = np.random.default_rng(0)
    rows = np.sort(generator.choice(len(vectors), size=min(SAMPLE, len(vectors)), replace=False))
    noise = generator.standard_normal((len(rows), vectors.shape[1])) * NOISE / np.sqrt(vectors.shape[1])
    moved = vectors[rows] + noise
    return unit_rows(moved)


def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise UsageError("approximate search needs faiss: pip install 'maskcon[faiss]'") from None
    return faiss

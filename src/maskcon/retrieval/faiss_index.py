"""Approximate search of large indexes by a faiss HNSW graph, whose recall is measured and stated.

The graph finds candidates; their scores are computed exactly from the stored vectors. A graph belongs to one state
of the index, whose checksum it holds, and is rebuilt after a refresh.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import CorruptFileError, MaskconError, UsageError
from maskcon.data.packing import Progress
from maskcon.retrieval.index_file import (
    CHECKSUM_BYTES,
    IndexFile,
    checked_digest,
    opened,
    read_head,
    write_sealed,
)
from maskcon.retrieval.nearest import best_of, nearest, unit_rows
from maskcon.retrieval.store import Vectors

GRAPH = "hnsw.maskcon"
MAGIC = b"MASKCHNS"
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
        found = _candidates(
            self.faiss_index, queries, min(2 * k, len(vectors)), width
        )  # [Q, up to 2k], -1: none
        positions = np.empty((len(queries), k), dtype=np.int64)
        scores = np.empty((len(queries), k), dtype=np.float64)
        for row, candidates in enumerate(found):
            there = np.unique(candidates[candidates >= 0])
            if len(there) < k:  # parts of a graph may be unreachable; then search exactly
                positions[row], scores[row] = (
                    part[0] for part in nearest(vectors, queries[row : row + 1], k)
                )
            else:
                positions[row], scores[row] = best_of(np.asarray(vectors), queries[row], there, k)
        return positions, scores


def build_graph(path: Path, index: IndexFile, progress: Progress | None = None) -> Graph:
    """Build the graph of an index and save it at `path`; too low a recall is an error, and nothing is saved.

    progress: called as progress(images added, total).
    """
    faiss = _faiss()
    count, dimension = index.vectors.shape
    if count == 0:
        raise UsageError("an empty index needs no graph")
    built = faiss.IndexHNSWFlat(dimension, LINKS, faiss.METRIC_INNER_PRODUCT)
    built.hnsw.efConstruction = BUILD_WIDTH
    for start in range(0, count, BUILD_ROWS):
        built.add(np.ascontiguousarray(index.vectors[start : start + BUILD_ROWS]))
        if progress is not None:
            progress(min(start + BUILD_ROWS, count), count)
    queries = _sample_queries(index.vectors)
    k = min(RECALL_K, count)
    _, truth = nearest(index.vectors, queries, k)
    for width in WIDTHS:
        graph = Graph(built, width, 0.0, len(queries))
        _, scores = graph.nearest(index.vectors, queries, k)
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
    described = {
        "version": 1,
        "index": index.digest,
        "width": width,
        "recall": recall,
        "sample": len(queries),
    }
    head = json.dumps(described, sort_keys=True).encode("ascii")
    write_sealed(path, [MAGIC + struct.pack("<Q", len(head)) + head, faiss.serialize_index(built).tobytes()])
    return Graph(built, width, recall, len(queries))


def read_graph(path: Path, index: IndexFile) -> Graph:
    """Read the graph of this index; its bytes are checked before faiss sees them."""
    if not path.exists():
        raise UsageError(
            f"there is no HNSW graph in {path.parent}; build it with `maskcon index RUN SOURCE --hnsw`"
        )
    try:
        with opened(path) as file:
            checked_digest(file, path, MAGIC)
            described, _ = read_head(file, MAGIC)
            content = np.frombuffer(file.read(), dtype=np.uint8)[:-CHECKSUM_BYTES]  # a view: it may be large
        fits = described["version"] == 1 and described["index"] == index.digest
        width, recall, sample = described["width"], described["recall"], described["sample"]
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        raise CorruptFileError(f"{path} is not a readable graph ({error}); delete it") from None
    if not fits:
        raise UsageError(
            f"{path} belongs to another state of the index; run `maskcon index RUN SOURCE --hnsw` again"
        )
    return Graph(_faiss().deserialize_index(content), int(width), float(recall), int(sample))


def is_available() -> bool:
    """Is faiss installed?"""
    from importlib.util import find_spec

    return find_spec("faiss") is not None


def _candidates(built: Any, queries: NDArray[np.float32], k: int, width: int) -> NDArray[np.int64]:
    parameters = _faiss().SearchParametersHNSW(efSearch=width)
    _, found = built.search(np.ascontiguousarray(queries, dtype=np.float32), k, params=parameters)
    return np.asarray(found, dtype=np.int64)


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

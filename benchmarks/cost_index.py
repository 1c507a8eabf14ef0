"""What an index of very many vectors would need: memory, machines, time of a query. See docs/scaling.md."""

from __future__ import annotations

import math
from collections.abc import Callable

from cost_count import FLOAT32
from cost_show import duration, size, table
from maskcon.retrieval.faiss_index import LINKS

INDEX_COUNTS, INDEX_DIMS = (10**6, 10**8, 10**9), (128, 512)
SERVER_BYTES = 0.75e12  # for vectors, of a machine with 1 TB of memory: assumed
SERVER_RATE = 200e9  # bytes/s that it reads from memory: assumed
CODE_BYTES = 64  # of a product quantiser that keeps a byte for every 2 (D = 128) or 8 (D = 512) numbers


def graph_bytes(dim: int) -> float:
    """Of a vector in faiss's HNSW: its numbers, 2 links a unit of M below, M on each level above, offset and level."""
    above = LINKS / (LINKS - 1)  # one of M nodes reaches the next level
    return FLOAT32 * dim + 4 * (2 * LINKS + above) + 8 + 4


FORMATS: dict[str, Callable[[int], float]] = {
    "float32, exact": lambda dim: 4.0 * dim,
    "float16": lambda dim: 2.0 * dim,
    "HNSW, M = 32": graph_bytes,
    "IVF-PQ, 64 bytes": lambda _: CODE_BYTES + 8.0,  # and the number of the vector
}


def index_table() -> str:
    rows = []
    for dim in INDEX_DIMS:
        for count in INDEX_COUNTS:
            needed = [per_vector(dim) * count for per_vector in FORMATS.values()]
            machines = [max(1, math.ceil(total / SERVER_BYTES)) for total in needed]
            cells = [f"{size(total)} ({number})" for total, number in zip(needed, machines, strict=True)]
            rows.append([f"{count:,} x {dim}", *cells])
    return table(("vectors", *FORMATS), rows)


def query_table() -> str:
    rows = []
    for dim in INDEX_DIMS:
        for count in INDEX_COUNTS:
            total = FLOAT32 * dim * count
            machines = max(1, math.ceil(total / SERVER_BYTES))
            rows.append(
                [
                    f"{count:,} x {dim}",
                    duration(total / SERVER_RATE),
                    f"{duration(total / SERVER_RATE / machines)} ({machines})",
                ]
            )
    return table(("vectors", "exact, one machine", "exact, on the machines that hold it"), rows)


INDEX_TABLES: dict[str, Callable[[], str]] = {
    "Memory of an index (machines of 1 TB)": index_table,
    "Time of a query": query_table,
}

"""Time of a search in an index.

python benchmarks/search.py [--images 100000] [--dimension 512] [--json FILE]

open_seconds      check every byte of an index on disk and read its vectors
query_ms          one exact query for 10 neighbours: median and slowest of 20 by wall clock, and median CPU time of
                  all threads
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskcon.retrieval.embeddings import INDEX, EmbeddingsStore, Index
from maskcon.retrieval.nearest import unit_rows
from maskcon.retrieval.store import Entry, Header

CLUSTERS, SPREAD, QUERIES = 200, 1.0, 20


def clustered(count: int, dimension: int, seed: int) -> NDArray[np.float32]:
    """Return unit vectors around random centres."""
    chance = np.random.default_rng(seed)
    centres = np.random.default_rng(0).standard_normal((CLUSTERS, dimension))
    blocks = []
    for start in range(0, count, 1 << 14):
        size = min(1 << 14, count - start)
        noise = SPREAD * chance.standard_normal((size, dimension))
        blocks.append(unit_rows(centres[chance.integers(0, CLUSTERS, size)] + noise))
    return np.concatenate(blocks)


def filled(folder: Path, vectors: NDArray[np.float32]) -> None:
    digests = [f"{row:064x}" for row in range(len(vectors))]
    store = EmbeddingsStore(folder / INDEX, Header("0" * 64, "benchmark"))
    store.stage(digests, vectors)
    store.commit([Entry(f"{row:09d}.jpg", 1, 1, digest) for row, digest in enumerate(digests)])


def query_times(store: Index, queries: NDArray[np.float32]) -> dict[str, float]:
    clock, processor = [], []
    for query in queries:
        begun, used = time.perf_counter(), time.process_time()
        store.search(query[None], 10)
        clock.append(1000 * (time.perf_counter() - begun))
        processor.append(1000 * (time.process_time() - used))
    return {
        "median": round(statistics.median(clock), 2),
        "slowest": round(max(clock), 2),
        "median_of_processor": round(statistics.median(processor), 2),
    }


def measure(count: int, dimension: int) -> dict[str, Any]:
    vectors, queries = clustered(count, dimension, 1), clustered(QUERIES, dimension, 2)
    with tempfile.TemporaryDirectory() as name:
        filled(Path(name), vectors)
        begun = time.perf_counter()
        store = Index(Path(name))
        result: dict[str, Any] = {
            "images": count,
            "dimension": dimension,
            "machine": platform.processor() or platform.machine(),
            "open_seconds": round(time.perf_counter() - begun, 3),
            "query_ms": query_times(store, queries),
        }
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--dimension", type=int, default=512)
    parser.add_argument("--json", type=Path, help="write the result to this file")
    chosen = parser.parse_args()
    result = json.dumps(measure(chosen.images, chosen.dimension), indent=2)
    print(result)
    if chosen.json is not None:
        chosen.json.write_text(result + "\n")


if __name__ == "__main__":
    main()

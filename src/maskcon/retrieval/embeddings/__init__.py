"""Embeddings of many pictures as one Parquet file: written in parts, sealed by a checksum, read back checked.

    rows       the pictures of a source by names that a table can hold
    write      embed what is new or changed, part by part, then put the file together
    file       the file itself

The columns are `path`, `coarse` (empty where nobody said), `stamp` (by which a changed picture is known) and `vector`
(float32, as `Run.encode` gives it: not normalised, compare by cosine). Any Parquet reader can read it.
"""

from __future__ import annotations

from maskcon.retrieval.embeddings.file import Embeddings, EmbeddingsFile, Facts, read_embeddings
from maskcon.retrieval.embeddings.writer import Outcome, write_embeddings

__all__ = ["Embeddings", "EmbeddingsFile", "Facts", "Outcome", "read_embeddings", "write_embeddings"]

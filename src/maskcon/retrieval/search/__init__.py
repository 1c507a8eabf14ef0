"""Search by picture: an index of the embeddings of a source's pictures, kept up to date, and the nearest in it.

data.collection -> refresh -> store (folder, PostgreSQL) -> exact or approximate search

Nothing here knows torch or the encoder: who embeds is handed in as a function.
"""

from __future__ import annotations

from maskcon.retrieval.search.base import Entry, Header, Neighbours, Store
from maskcon.retrieval.search.exact import nearest_exact, unit_rows
from maskcon.retrieval.search.index_file import IndexFile, read_index, write_index
from maskcon.retrieval.search.index_folder import FolderStore
from maskcon.retrieval.search.refresh import Refreshed, refresh

__all__ = [
    "Entry",
    "FolderStore",
    "Header",
    "IndexFile",
    "Neighbours",
    "Refreshed",
    "Store",
    "nearest_exact",
    "read_index",
    "refresh",
    "unit_rows",
    "write_index",
]

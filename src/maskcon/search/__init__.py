"""Search by picture: an index of the embeddings of a source's pictures, kept up to date, and the nearest in it.

maskcon.pictures (what is there) -> refresh (what is new) -> a store (folder, postgres) -> exact or approximate -> grid

Nothing here knows torch or the encoder: who embeds is handed in as a function.
"""

from __future__ import annotations

from maskcon.search.contract import Entry, Header, Neighbours, Store
from maskcon.search.exact import nearest_exact, unit_rows
from maskcon.search.folder import FolderStore
from maskcon.search.index_file import IndexFile, read_index, write_index
from maskcon.search.refresh import Refreshed, refresh

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

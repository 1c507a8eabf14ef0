"""Bring an index up to date: only pictures whose content is new are embedded."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import DataError
from maskcon._utils.failpoints import failpoint
from maskcon._utils.text import counted
from maskcon.data.collection import Pictures, at_once, none_readable
from maskcon.data.folder_layout import show
from maskcon.data.packing import Progress
from maskcon.retrieval.search.base import Entry, Store, Vectors, in_order
from maskcon.retrieval.search.exact import unit_rows

# images uint8 [n, C, S, S] and valid sizes [n, 2] or None -> embeddings [n, D]
Embed = Callable[[NDArray[np.uint8], NDArray[np.int32] | None], NDArray[np.floating]]

CHUNK_PICTURES = 512  # decoded at once: at most this many, and fewer of large ones
STAGE_SECONDS = 10.0  # what a kill may cost


@dataclass(frozen=True)
class Refreshed:
    """What a refresh found and did. failures: path -> why the picture is not in the index."""

    added: int = 0
    changed: int = 0
    removed: int = 0
    unchanged: int = 0
    embedded: int = 0
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return self.added + self.changed + self.unchanged


def refresh(
    store: Store,
    pictures: Pictures,
    embed: Embed,
    *,
    strict: bool = False,
    progress: Progress | None = None,
) -> Refreshed:
    """Make the index hold what the source holds now.

    A file whose path, size and time are those of the index is not read. Any other is hashed, and embedded only if
    that content is new: a touched, renamed or doubled file costs its hash, and so does every file of a folder that
    takes the place of another. Pictures are held in memory a chunk at a time.

    strict: a picture that cannot be read is an error; otherwise it is left out, and told
    progress: called as progress(pictures looked at, in all)
    """
    before = {entry.path: entry for entry in store.entries()}
    found = [
        Entry(path, *stamp, digest="") for path, stamp in zip(pictures.paths, pictures.stamps, strict=True)
    ]
    if not found:
        raise _nothing(pictures, len(before), pictures.unreadable)
    header = store.header()
    # under another root, equal paths, sizes and times say nothing: archives give all their files one time
    comparable = before if header is not None and store.owner and header.where == store.owner.where else {}
    same = [entry for entry in (_unchanged(entry, comparable) for entry in found) if entry is not None]
    same_paths = {entry.path for entry in same}
    news = [row for row, entry in enumerate(found) if entry.path not in same_paths]
    work = _Work(store, pictures, found, embed)
    chunk = at_once(pictures, CHUNK_PICTURES)
    if progress is not None and news:
        progress(len(same), len(found))
    try:
        for start in range(0, len(news), chunk):
            work.take(news[start : start + chunk])
            if progress is not None:
                progress(len(same) + min(start + chunk, len(news)), len(found))
    finally:
        work.flush()  # also when interrupted: nothing computed is lost
    failures = {**pictures.unreadable, **work.failures}
    if strict and failures:
        path, why = next(iter(failures.items()))
        raise DataError(
            f"{show(path)} cannot be read ({why}); {len(failures)} such files in all. The index was left as it "
            "was; repair or remove them, or leave --strict off"
        )
    entries = in_order([*same, *work.entries])
    if not entries:
        raise _nothing(pictures, len(before), failures)
    if entries != in_order(list(before.values())) or header != store.owner:
        failpoint("index-before-commit")
        store.commit(entries)
        failpoint("index-after-commit")
    store.tidy()
    return _counted(before, entries, work.embedded, failures)


class _Work:
    """The pictures whose content has to be looked at."""

    def __init__(self, store: Store, pictures: Pictures, found: Sequence[Entry], embed: Embed) -> None:
        self.store, self.pictures, self.found, self.embed = store, pictures, found, embed
        self.known = store.known()
        self.entries: list[Entry] = []
        self.failures: dict[str, str] = {}
        self.embedded = 0
        self._waiting: list[tuple[list[str], Vectors]] = []
        self._last_stage = time.monotonic()

    def take(self, rows: list[int]) -> None:
        """Hash these pictures, and embed those of new content, each content once."""
        hashed: dict[int, str] = {}
        for row, digest in zip(rows, self.pictures.digests(rows), strict=True):
            if digest is None:
                self.failures[self.found[row].path] = "cannot be opened"
            else:
                hashed[row] = digest
        first: dict[str, int] = {}  # of each new content the first picture
        for row, digest in hashed.items():
            if digest not in self.known:
                first.setdefault(digest, row)
        broken = self._embed({row: digest for digest, row in first.items()})
        for row, digest in hashed.items():
            entry = self.found[row]
            if digest in broken:
                self.failures[entry.path] = broken[digest]
            else:
                self.entries.append(replace(entry, digest=digest))

    def flush(self) -> None:
        """Hand over to the store what was embedded since the last time."""
        if self._waiting:
            digests = [digest for part, _ in self._waiting for digest in part]
            vectors = np.concatenate([part for _, part in self._waiting])
            self._waiting = []
            self.store.stage(digests, vectors)
            failpoint("index-after-stage")
        self._last_stage = time.monotonic()

    def _embed(self, digests: Mapping[int, str]) -> dict[str, str]:
        """Embed pictures, given as row -> digest; digest -> why not, for those that cannot be decoded."""
        if not digests:
            return {}
        block = self.pictures.read(list(digests))
        if block.rows:
            vectors = unit_rows(self.embed(block.images, block.sizes))
            kept = [digests[row] for row in block.rows]
            self._waiting.append((kept, vectors))
            self.known.update(kept)
            self.embedded += len(kept)
        if time.monotonic() - self._last_stage >= STAGE_SECONDS:
            self.flush()
        return {digests[row]: why for row, why in block.failures.items()}


def _unchanged(found: Entry, before: dict[str, Entry]) -> Entry | None:
    old = before.get(found.path)
    return old if old and (old.size, old.mtime_ns) == (found.size, found.mtime_ns) else None


def _counted(
    before: dict[str, Entry], entries: list[Entry], embedded: int, failures: dict[str, str]
) -> Refreshed:
    now = {entry.path: entry for entry in entries}
    both = now.keys() & before.keys()
    changed = sum(now[path].digest != before[path].digest for path in both)
    return Refreshed(
        added=len(now) - len(both),
        changed=changed,
        removed=len(before) - len(both),
        unchanged=len(both) - changed,
        embedded=embedded,
        failures=failures,
    )


def _nothing(pictures: Pictures, before: int, failures: Mapping[str, str]) -> DataError:
    kept = f". The index of {counted(before, 'picture')} was left as it was" if before else ""
    return DataError(f"{none_readable(pictures, failures)}{kept}")

"""Refresh a store of embeddings: embed only new or changed images.

    gather (maskcon.data) -> refresh -> a Store: an embeddings file or PostgreSQL

`maskcon embed` and `maskcon index` share this. Vectors are identified by the content they were computed from: a renamed
or duplicated file is embedded once. The encoder is passed in as a function; this module needs no torch.
Letters in shapes: N images, D length of an embedding, Q queries.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import DataError, MaskconError, UsageError
from maskcon._utils.files import failpoint
from maskcon._utils.text import counted
from maskcon.data.folder_layout import show
from maskcon.data.image_readers import Block, Images, at_once, none_readable
from maskcon.data.packing import Progress

Vectors = NDArray[np.float32]
# images uint8 [n, C, S, S] and valid sizes [n, 2] or None -> embeddings [n, D]
Embed = Callable[[NDArray[np.uint8], NDArray[np.int32] | None], NDArray[np.floating]]

CHUNK_IMAGES = 128  # decoded and embedded at a time, fewer if they are large
STAGE_SECONDS = 10.0  # between two saves: a kill loses at most this much work


@dataclass(frozen=True)
class Entry:
    """One image of a store.

    Attributes:
        path: relative to the source's root, with `/`; bytes that are not UTF-8 as Python's file functions give them.
        size, mtime_ns: a file with both unchanged is not read.
        digest: sha256 (hex) of the content.
        coarse: label; None if unknown, and in stores that keep no labels.
    """

    path: str
    size: int
    mtime_ns: int
    digest: str
    coarse: str | None = None


@dataclass(frozen=True)
class Header:
    """What a store was made from.

    Attributes:
        encoder: sha256 (hex) of the encoder's file.
        source: a dataset's name, or the full path of a folder.
        root: folder that paths are relative to; "" if the images are not files.
        details: more about the encoder, for readers of the file.
    """

    encoder: str
    source: str
    root: str = ""
    details: Mapping[str, object] = field(default_factory=dict, compare=False)

    @property
    def where(self) -> str:
        """What paths are relative to: the root, or the source if images are not files."""
        return self.root or self.source

    def full_path(self, entry: Entry) -> str:
        """Return the full path of an image; its name if it is not a file."""
        return str(Path(self.root) / entry.path) if self.root else entry.path


@dataclass(frozen=True)
class Neighbours:
    """The nearest images of Q queries, best first; ties in the order of the index.

    Attributes:
        entries: entries[q][rank].
        scores: cosines [Q, k]; k is at most the size of the index.
    """

    entries: list[list[Entry]]
    scores: NDArray[np.float64]


class Store(Protocol):
    """Embeddings that `refresh` keeps up to date.

    Staged vectors survive a kill; a commit is all or nothing.

    Attributes:
        owner: the header after a commit; None for a store opened to read.
        notes: what a user should know, such as damaged parts.
    """

    owner: Header | None
    notes: list[str]

    def header(self) -> Header | None:
        """Return the header of the last commit; None if there is none."""
        ...

    def entries(self) -> Sequence[Entry]:
        """Return the entries of the last commit, in the order of the store."""
        ...

    def known(self) -> set[str]:
        """Return the digests with a vector, committed or staged by an earlier attempt."""
        ...

    def stage(self, digests: Sequence[str], vectors: Vectors) -> None:
        """Save vectors [n, D] for the coming commit."""
        ...

    def commit(self, entries: Sequence[Entry]) -> None:
        """Replace the content by these entries and their vectors; drop staged vectors."""
        ...

    def forget(self) -> None:
        """Ignore what was committed: it is damaged or comes from another model or source."""
        ...


@dataclass(frozen=True)
class Refreshed:
    """The result of a refresh.

    Attributes:
        embedded: number of images that went through the encoder.
        failures: path -> why the image was left out.
    """

    added: int = 0
    changed: int = 0
    removed: int = 0
    unchanged: int = 0
    embedded: int = 0
    failures: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        return self.added + self.changed + self.unchanged

    @property
    def reused(self) -> int:
        """Number of images whose vector was stored already."""
        return self.total - self.embedded


def refresh(
    store: Store,
    images: Images,
    embed: Embed,
    *,
    strict: bool = False,
    progress: Progress | None = None,
) -> Refreshed:
    """Bring the store up to date with its source.

    A file with unchanged path, size and time is not read. Any other is hashed, and embedded only if its content is
    new. The next chunk is read while one is embedded. Chunks start at fixed rows of the source: a resumed refresh
    forms the batches of an uninterrupted one, and gives the same bits.

    Args:
        strict: raise on an image that cannot be read instead of leaving it out.
        progress: called as progress(images done, total).
    """
    before = {entry.path: entry for entry in store.entries()}
    found = [
        Entry(path, *stamp, digest="", coarse=coarse)
        for path, stamp, coarse in zip(images.paths, images.stamps, images.coarse, strict=True)
    ]
    if not found:
        raise _no_images(images, len(before), images.unreadable)
    header = store.header()
    # equal paths, sizes and times below another root mean nothing: archives give all their files the same time
    comparable = before if header is not None and store.owner and header.where == store.owner.where else {}
    digests: dict[int, str] = {}  # row -> content
    for row, entry in enumerate(found):
        old = comparable.get(entry.path)
        if old is not None and (old.size, old.mtime_ns) == (entry.size, entry.mtime_ns):
            digests[row] = old.digest
    pending = [row for row in range(len(found)) if row not in digests]
    failures = dict(images.unreadable)
    done = len(digests)
    if progress is not None and pending:
        progress(done, len(found))
    staging = _Staging(store, embed)
    try:
        for chunk in _read_ahead(images, pending, store.known() if pending else set()):
            staging.add(chunk)
            digests |= chunk.digests
            failures |= {found[row].path: why for row, why in chunk.failures.items()}
            done += chunk.count
            _check_strict(strict, failures)
            if progress is not None:
                progress(done, len(found))
    finally:
        staging.flush()  # also when interrupted, to lose no work
    _check_strict(strict, failures)
    entries = [replace(found[row], digest=digests[row]) for row in sorted(digests)]
    if not entries:
        raise _no_images(images, len(before), failures)
    store.commit(entries)
    now = {entry.path: entry for entry in entries}
    both = now.keys() & before.keys()
    changed = sum(now[path].digest != before[path].digest for path in both)
    return Refreshed(
        added=len(now) - len(both),
        changed=changed,
        removed=len(before) - len(both),
        unchanged=len(both) - changed,
        embedded=staging.embedded,
        failures=failures,
        notes=(*images.notes, *store.notes),
    )


def check_replaces(store: Store, where: str, replace: bool) -> None:
    """Refuse to overwrite the store of another model or source, unless `replace`."""
    owner = store.owner
    assert owner is not None
    try:
        found = store.header()
        if found is None:
            return
        if found.encoder != owner.encoder:
            raise UsageError(
                f"{where} holds {found.source}, made with another model (encoder {found.encoder[:12]}, this run's is "
                f"{owner.encoder[:12]}); choose another --out, or give --replace"
            )
    except UsageError:
        if not replace:
            raise
        store.forget()
        store.notes.append(f"{where} held something else, which was replaced")
        return
    if found.where != owner.where:
        if not replace:
            raise UsageError(
                f"{where} holds {found.source}, not {owner.source}; choose another --out, or give --replace"
            )
        store.notes.append(f"{where} held {found.source}, which was replaced")


def check_encoder(found: Header | None, encoder: str, where: str) -> Header:
    """Return the header if the index was made by this encoder."""
    if found is None:
        raise UsageError(f"there is no index in {where}; build one with `maskcon index RUN SOURCE`")
    if found.encoder != encoder:
        raise UsageError(
            f"the index in {where} was made with another model (encoder {found.encoder[:12]}, this run's is "
            f"{encoder[:12]}); use that run, or rebuild it with `maskcon index RUN SOURCE --replace`"
        )
    return found


def check_request(queries: Vectors, k: int, dimension: int) -> None:
    """Refuse queries that no index can answer."""
    if k < 1:
        raise UsageError(f"k must be at least 1, got {k}")
    if queries.ndim != 2 or queries.shape[1] != dimension:
        raise UsageError(f"queries must be [Q, {dimension}] as the index, got {list(queries.shape)}")


@dataclass(frozen=True)
class _Chunk:
    """Some hashed images; those with new content are decoded in `block`.

    digests: row -> digest of readable images; failures: row -> reason; new: digest of each row of `block`
    """

    count: int
    digests: dict[int, str]
    failures: dict[int, str]
    block: Block | None
    new: list[str]


def _read_ahead(images: Images, pending: Sequence[int], known: set[str]) -> Iterator[_Chunk]:
    """Hash and decode chunks of the pending rows, one chunk ahead.

    Equal images are decoded once.
    """
    broken: dict[str, str] = {}  # digest -> why it cannot be decoded

    def read(rows: list[int]) -> _Chunk:
        hashed = dict(zip(rows, images.digests(rows), strict=True))
        failures = {row: "cannot be opened" for row, digest in hashed.items() if digest is None}
        digests = {row: digest for row, digest in hashed.items() if digest is not None}
        first: dict[str, int] = {}  # the first image of each new content
        for row, digest in digests.items():
            if digest not in known and digest not in broken:
                first.setdefault(digest, row)
        block = images.read(list(first.values())) if first else None
        new = [] if block is None else [digests[row] for row in block.rows]
        known.update(new)
        broken.update({} if block is None else {digests[row]: why for row, why in block.failures.items()})
        failures |= {row: broken[digest] for row, digest in digests.items() if digest in broken}
        readable = {row: digest for row, digest in digests.items() if row not in failures}
        return _Chunk(len(rows), readable, failures, block, new)

    step = at_once(images, CHUNK_IMAGES)
    parts = [list(rows) for _, rows in groupby(pending, key=lambda row: row // step)]
    with ThreadPoolExecutor(1, "maskcon-read") as pool:
        ahead: Future[_Chunk] | None = None
        for rows in [*parts, []]:
            following = pool.submit(read, rows) if rows else None
            if ahead is not None:
                yield ahead.result()
            ahead = following


class _Staging:
    """Embeds new content and hands the vectors to the store every few seconds."""

    def __init__(self, store: Store, embed: Embed) -> None:
        self.store, self.embed = store, embed
        self.embedded = 0
        self._waiting: list[tuple[list[str], Vectors]] = []
        self._last_stage = time.monotonic()

    def add(self, chunk: _Chunk) -> None:
        if chunk.block is not None and chunk.new:
            vectors = self.embed(chunk.block.images, chunk.block.sizes)
            if not np.isfinite(vectors).all():
                raise MaskconError("the encoder gives NaN or Inf; train it again with a lower learning_rate")
            self._waiting.append((chunk.new, vectors.astype(np.float32, copy=False)))
            self.embedded += len(chunk.new)
        if time.monotonic() - self._last_stage >= STAGE_SECONDS:
            self.flush()

    def flush(self) -> None:
        if self._waiting:
            digests = [digest for part, _ in self._waiting for digest in part]
            vectors = np.concatenate([part for _, part in self._waiting])
            self._waiting = []
            self.store.stage(digests, vectors)
            failpoint("index-after-stage")
        self._last_stage = time.monotonic()


def _check_strict(strict: bool, failures: Mapping[str, str]) -> None:
    if strict and failures:
        path, why = next(iter(failures.items()))
        raise DataError(
            f"{show(path)} cannot be read ({why}); {counted(len(failures), 'such file')} so far. Nothing was "
            "overwritten; repair or remove them, or leave --strict off"
        )


def _no_images(images: Images, before: int, failures: Mapping[str, str]) -> DataError:
    kept = f". The {counted(before, 'image')} stored before are unchanged" if before else ""
    return DataError(f"{none_readable(images, failures)}{kept}")

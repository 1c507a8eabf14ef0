"""Embed a source into one file: part by part, so that a stopped command goes on, and only what is new or changed.

Each part is a small embeddings file in `.NAME.parts/` beside the target, whole or not there. The same command again
takes from the parts, and from a finished file, every picture whose stamp is still the same. At the end the rows are
put together in the order of the source, a group at a time, and the file is renamed into place.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskcon import __version__
from maskcon._utils.errors import CorruptFileError, DataError, MaskconError, UsageError
from maskcon._utils.run_lock import FolderLock
from maskcon.api import Run, features_of
from maskcon.config.settings import Machine
from maskcon.data.collection import Block, Given, Pictures, at_once, gather, none_readable
from maskcon.data.folder_layout import show
from maskcon.models import Backbone
from maskcon.models.encoder_file import EncoderFacts, read_encoder
from maskcon.retrieval.embeddings.file import EmbeddingsFile, EmbeddingsWriter, Facts
from maskcon.retrieval.embeddings.rows import Named, Rows
from maskcon.training.distributed import usable_device
from maskcon.training.run_folder import ENCODER, make_writable

OTHER_FORMATS = frozenset(  # a Parquet file under such a name would surprise whoever opens it
    (".csv", ".tsv", ".txt", ".json", ".jsonl", ".npy", ".npz", ".pkl", ".pt", ".h5", ".xlsx")
)
PART_IMAGES = 256  # at most so many are embedded again after a kill
BLOCK_IMAGES = 64  # at most so many between two signs of progress
GROUP_ROWS = 1024  # of the finished file
GROUPS_AT_HAND = 8  # groups of stored rows kept in memory while the file is put together
Progress = Callable[[int, int], None]  # pictures done, in all


@dataclass(frozen=True)
class Outcome:
    """What became of a source: its file, how many rows were embedded now and how many taken over, what was left out."""

    path: Path
    facts: Facts
    embedded: int
    taken_over: int
    left_out: Mapping[str, str]  # path -> reason
    seconds: float
    notes: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        return self.embedded + self.taken_over


def write_embeddings(
    run: Run,
    source: Given,
    out: str | Path,
    *,
    machine: Machine | None = None,
    device: str = "cpu",
    strict: bool = False,
    replace: bool = False,
    part_images: int = PART_IMAGES,
    progress: Progress | None = None,
    reading: Progress | None = None,
) -> Outcome:
    """Embed every picture of a source with a run's encoder into the Parquet file `out`.

    Args:
        run: a finished run.
        source: a folder (labels not needed), a list of files, a data set by name, or a `Dataset`; see `gather`.
        out: the file to write, or to bring up to date. What is no embeddings file is not overwritten.
        machine: where data sets live, and whether they may be fetched.
        device: cpu, cuda, mps or auto.
        strict: a picture that cannot be read is an error; otherwise it is left out and named in the outcome.
        replace: embeddings of another encoder or source may be overwritten.
        part_images: pictures between two savings.
        progress: called as progress(pictures done, in all).
        reading: the same for a data set that has to be decoded as a whole before.

    Example:
        >>> outcome = write_embeddings(Run.open("runs/photos"), "./photos", "photos.parquet")  # doctest: +SKIP
        >>> outcome.count, outcome.left_out  # doctest: +SKIP
    """
    begun = time.monotonic()
    if part_images < 1:
        raise UsageError(f"{part_images=} must be at least 1")
    target = Path(out)
    if target.is_dir():
        raise UsageError(
            f"{target} is a folder; give a file to write, such as {target / 'embeddings.parquet'}"
        )
    if target.suffix.lower() in OTHER_FORMATS:
        raise UsageError(
            f"embeddings are written as Parquet, and {target.name} promises something else; name it "
            f"{target.with_suffix('.parquet').name}. Afterwards pandas.read_parquet(...) reads it, and can save it anew"
        )
    usable_device(device)  # before anything slow
    backbone, encoder = read_encoder(run.folder / ENCODER)
    machine = machine or Machine()
    pictures = gather(
        source,
        canvas=encoder.canvas,
        channels=encoder.in_channels,
        root=None if machine.data_root is None else Path(machine.data_root),
        variant=run.config.source_variant,
        download=machine.download,
        strict=strict,
        progress=reading,
    )
    if not pictures.paths:
        raise DataError(none_readable(pictures, pictures.unreadable))
    table = Rows(pictures)
    facts = _facts(run, encoder, backbone, pictures)
    make_writable(target.parent)
    parts = target.with_name(f".{target.name}.parts")
    make_writable(parts)
    with FolderLock(parts), ExitStack() as held:
        held.callback(_remove_if_empty, parts)
        stored = _Stored(facts, list(pictures.notes))
        if target.exists():
            stored.add_finished(held, target, replace)
        for path in sorted(parts.glob("part-*.parquet")):
            stored.add_part(path)
        pending = [row for row in range(len(table)) if not stored.has(table, row)]
        left_out = dict(table.unreadable)
        _stop_if(strict, left_out)
        embedder = _Embedder(backbone, encoder, device)
        done = len(table) - len(pending)
        if progress is not None:
            progress(done, len(table))
        embedded = 0
        for count, failures, is_saved in _save_parts(parts, stored, embedder, table, pending, part_images):
            left_out |= failures
            if is_saved:
                _stop_if(strict, left_out)
            embedded += count
            done += count + len(failures)
            if progress is not None:
                progress(done, len(table))
        kept = [row for row in range(len(table)) if stored.has(table, row)]
        if not kept:
            raise DataError(none_readable(pictures, left_out))
        if not stored.is_up_to_date(table, kept, embedded):
            _assemble(target, facts, stored, table, kept)
        shutil.rmtree(parts, ignore_errors=True)
    seconds = time.monotonic() - begun
    return Outcome(
        target, facts, embedded, len(kept) - embedded, left_out, seconds, notes=tuple(stored.notes)
    )


def _remove_if_empty(parts: Path) -> None:
    """A command that failed before its first part leaves nothing behind."""
    if not any(parts.glob("part-*")):
        shutil.rmtree(parts, ignore_errors=True)


def _stop_if(strict: bool, left_out: Mapping[str, str]) -> None:
    if strict and left_out:
        path, why = next(iter(left_out.items()))
        raise DataError(f"{show(path)} cannot be read ({why}); repair or remove it, or leave --strict off")


def _facts(run: Run, encoder: EncoderFacts, backbone: Backbone, pictures: Pictures) -> Facts:
    return Facts(
        encoder_sha256=run.encoder_digest(),
        backbone=encoder.backbone,
        image_size=encoder.image_size,
        in_channels=encoder.in_channels,
        test_resize=encoder.test_resize,
        features=backbone.features,
        source=show(pictures.source),
        root=show(pictures.root) if pictures.root else None,
        run=show(run.folder.resolve().name),
        version=__version__,
    )


@dataclass(frozen=True)
class _Embedder:
    backbone: Backbone
    facts: EncoderFacts
    device: str

    def __call__(self, block: Block) -> NDArray[np.float32]:
        """[M, F]"""
        if not block.rows:
            return np.empty((0, self.backbone.features), dtype=np.float32)
        features = features_of(self.backbone, self.facts, block.images, block.sizes, self.device)
        vectors: NDArray[np.float32] = features.numpy()
        if not np.isfinite(vectors).all():
            raise MaskconError("the encoder gives NaN or Inf; train it again with a lower learning_rate")
        return vectors


def _save_parts(
    parts: Path,
    stored: _Stored,
    embedder: _Embedder,
    table: Rows,
    pending: Sequence[int],
    part_images: int,
) -> Iterator[tuple[int, dict[str, str], bool]]:
    """Embed and save part by part. Tells of each block how many were embedded, which were not and why, and whether
    all so far is saved.
    """
    rows: list[int] = []  # of the part so far
    vectors: list[NDArray[np.float32]] = []
    for block, found, ends_part in _embedded(embedder, table, pending, part_images):
        rows += block.rows
        vectors.append(found)
        if ends_part and rows:
            path = parts / f"part-{time.time_ns():020d}.parquet"
            with EmbeddingsWriter(path, stored.facts) as part:
                part.add(*table.named(rows), np.concatenate(vectors))
            stored.add_part(path)
            rows, vectors = [], []
        yield len(block.rows), {table.paths[row]: why for row, why in block.failures.items()}, ends_part


def _embedded(
    embedder: _Embedder, table: Rows, pending: Sequence[int], part_images: int
) -> Iterator[tuple[Block, NDArray[np.float32], bool]]:
    """Blocks with their vectors, and whether a part ends; the next block is read while one is embedded.

    Parts begin at fixed rows of the source, and blocks at fixed places in a part: a command that goes on forms the
    batches that an undisturbed one does, and so gives the same bits.
    """
    blocks: list[tuple[int, list[int]]] = []  # number of the part, rows
    by_part: dict[int, list[int]] = {}
    for row in pending:
        by_part.setdefault(row // part_images, []).append(row)
    step = at_once(table.pictures, BLOCK_IMAGES)
    for number, rows in by_part.items():
        blocks += [(number, rows[start : start + step]) for start in range(0, len(rows), step)]
    with ThreadPoolExecutor(1, "maskcon-embed") as reader:
        ahead = reader.submit(table.read, blocks[0][1]) if blocks else None
        for place, (number, _) in enumerate(blocks):
            assert ahead is not None
            block = ahead.result()
            is_last = place + 1 == len(blocks)
            ahead = None if is_last else reader.submit(table.read, blocks[place + 1][1])
            yield block, embedder(block), is_last or blocks[place + 1][0] != number


@dataclass
class _Stored:
    """Rows that earlier commands, and this one, have embedded: path -> stamp and place."""

    facts: Facts
    notes: list[str] = field(default_factory=list)
    # parts are many, and opened when needed
    _files: list[EmbeddingsFile | Path] = field(default_factory=list)
    _places: dict[str, tuple[str, int, int, int]] = field(default_factory=dict)  # stamp, file, group, row
    _finished: Named | None = None
    _finished_facts: Facts | None = None

    def __post_init__(self) -> None:
        self._group = lru_cache(GROUPS_AT_HAND)(self._read_group)

    def add_finished(self, held: ExitStack, path: Path, replace: bool) -> None:
        """The file that an earlier command left. Only one of ours, and of other pictures only if asked, is replaced."""
        try:
            file = held.enter_context(EmbeddingsFile(path))
        except CorruptFileError as error:
            raise UsageError(f"{error}; it is left as it is: delete it, or choose another --out") from None
        if not file.facts.same_pictures_and_encoder(self.facts):
            held_before = f"{len(file):,} embeddings of {file.facts.source} by the run {file.facts.run}"
            if not replace:
                raise UsageError(
                    f"{path} holds {held_before}: of another encoder or source; choose another --out, or give --replace"
                )
            self.notes.append(f"{path} held {held_before}, and is replaced")
            return
        self._add(file, file)
        named: Named = ([], [], [])
        for paths, coarse, stamps in file.names():
            named[0].extend(paths)
            named[1].extend(coarse)
            named[2].extend(stamps)
        self._finished, self._finished_facts = named, file.facts

    def add_part(self, path: Path) -> None:
        try:
            with EmbeddingsFile(path) as file:
                if file.facts.same_pictures_and_encoder(self.facts):
                    self._add(path, file)
        except CorruptFileError as error:
            self.notes.append(f"what a damaged part held is embedded anew ({error})")

    def _add(self, kept: EmbeddingsFile | Path, file: EmbeddingsFile) -> None:
        self._files.append(kept)
        for group, (paths, _, stamps) in enumerate(file.names()):
            for row, (path, stamp) in enumerate(zip(paths, stamps, strict=True)):
                self._places[path] = stamp, len(self._files) - 1, group, row

    def has(self, table: Rows, row: int) -> bool:
        place = self._places.get(table.paths[row])
        return place is not None and place[0] == table.stamps[row]

    def is_up_to_date(self, table: Rows, kept: Sequence[int], embedded: int) -> bool:
        """Does the finished file say just this already?"""
        return embedded == 0 and self._finished_facts == self.facts and self._finished == table.named(kept)

    def vectors(self, paths: Sequence[str]) -> NDArray[np.float32]:
        """[len(paths), F]"""
        found = np.empty((len(paths), self.facts.features), dtype=np.float32)
        for place, path in enumerate(paths):
            _, file, group, row = self._places[path]
            found[place] = self._group(file, group)[row]
        return found

    def _read_group(self, file: int, group: int) -> NDArray[np.float32]:
        kept = self._files[file]
        if isinstance(kept, EmbeddingsFile):
            return kept.group(group).vectors
        with EmbeddingsFile(kept) as part:
            return part.group(group).vectors


def _assemble(target: Path, facts: Facts, stored: _Stored, table: Rows, kept: Sequence[int]) -> None:
    with EmbeddingsWriter(target, facts) as writer:
        for start in range(0, len(kept), GROUP_ROWS):
            named = table.named(kept[start : start + GROUP_ROWS])
            writer.add(*named, stored.vectors(named[0]))

"""Keep an embeddings file as a store of `refresh`; search one as an index.

The file is written in parts, resumed after a kill, and either complete or absent. An index is an embeddings file in a
folder, searched exactly.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from maskcon._utils.errors import CorruptFileError, MaskconError, UsageError
from maskcon._utils.files import failpoint, make_folder
from maskcon.retrieval.embeddings_file import Embeddings, read_embeddings, write_embeddings
from maskcon.retrieval.nearest import make_unit_rows, nearest
from maskcon.retrieval.store import Entry, Header, Neighbours, Vectors, check_request

INDEX = "index.parquet"  # in the folder of an index
OTHER_FORMATS = frozenset(  # a Parquet file with such a name would mislead readers
    (".csv", ".tsv", ".txt", ".json", ".jsonl", ".npy", ".npz", ".pkl", ".pt", ".h5", ".xlsx")
)


def check_target(target: Path) -> None:
    """Refuse names that cannot or should not name an embeddings file."""
    if target.is_dir():
        raise UsageError(
            f"{target} is a folder; give a file to write, such as {target / 'embeddings.parquet'}"
        )
    if target.suffix.lower() in OTHER_FORMATS:
        raise UsageError(
            f"embeddings are written as Parquet, which the name {target.name} does not say; name it "
            f"{target.with_suffix('.parquet').name}. Then pandas.read_parquet(...) reads it, and can convert it"
        )


class EmbeddingsStore:
    """An embeddings file; see `Store`. The caller locks its folder.

    Unfinished parts lie in `.NAME.parts/` beside the file. Rows keep the order of the source. A target that is damaged
    or not an embeddings file is refused.
    """

    def __init__(self, path: Path, owner: Header) -> None:
        self.path = path
        self.owner: Header | None = owner
        self.notes: list[str] = []
        self._encoder = owner.encoder
        self._parts: list[Embeddings] | None = None
        self._previous: Embeddings | None = None
        if path.exists():
            try:
                self._previous = read_embeddings(path)
            except CorruptFileError as error:
                raise UsageError(f"{error}; it was not changed: delete it, or choose another --out") from None

    def header(self) -> Header | None:
        return None if self._previous is None else self._previous.header

    def entries(self) -> Sequence[Entry]:
        return [] if self._previous is None else self._previous.entries

    def known(self) -> set[str]:
        return {entry.digest for file in self._files() for entry in file.entries}

    def stage(self, digests: Sequence[str], vectors: Vectors) -> None:
        folder = parts_folder(self.path)
        make_folder(folder)
        path = folder / f"{1 + max((int(part.stem) for part in folder.glob('*.part')), default=0):08d}.part"
        entries = [Entry("", 0, 0, digest) for digest in digests]
        write_embeddings(path, Header(self._encoder, ""), entries, list(vectors))
        self._parts = [*(self._parts or []), read_embeddings(path)]

    def commit(self, entries: Sequence[Entry]) -> None:
        if list(entries) != list(self.entries()) or self.header() != self.owner:
            assert self.owner is not None
            failpoint("index-before-commit")
            write_embeddings(self.path, self.owner, entries, self._vectors(entries))
            failpoint("index-after-commit")
            self._previous = read_embeddings(self.path)
        shutil.rmtree(parts_folder(self.path), ignore_errors=True)
        self._parts = []

    def forget(self) -> None:
        self._previous = None  # parts stay: only those of this encoder are used

    def _vectors(self, entries: Sequence[Entry]) -> list[Vectors]:
        vector_of = {
            entry.digest: vector
            for file in self._files()
            for entry, vector in zip(file.entries, file.vectors, strict=True)
        }
        return [vector_of[entry.digest] for entry in entries]

    def _files(self) -> list[Embeddings]:
        """Return the previous file and usable parts; delete damaged and foreign ones."""
        if self._parts is None:
            self._parts = []
            for path in sorted(parts_folder(self.path).glob("*.part")):
                try:
                    part = read_embeddings(path)
                    if part.header.encoder == self._encoder and path.stem.isdecimal():
                        self._parts.append(part)
                        continue
                    self.notes.append(f"{path.name} comes from another model and was removed")
                except MaskconError:
                    self.notes.append(
                        f"{path.name} of an earlier attempt is damaged; its images are embedded again"
                    )
                path.unlink(missing_ok=True)
        return [*self._parts, *([] if self._previous is None else [self._previous])]


def parts_folder(target: Path) -> Path:
    """Return the folder of the unfinished parts of an embeddings file."""
    return target.with_name(f".{target.name}.parts")


def remove_empty_parts(target: Path) -> None:
    """Remove the folder of parts if a command failed before its first part."""
    if not any(parts_folder(target).glob("*.part")):
        shutil.rmtree(parts_folder(target), ignore_errors=True)


class Index:
    """An index in memory, its vectors scaled to length 1.

    Attributes:
        header, entries: see `Embeddings`.
        vectors: float32 [N, D].
    """

    def __init__(self, folder: Path) -> None:
        if not (folder / INDEX).exists():
            raise UsageError(f"there is no index in {folder}; build one with `maskcon index RUN SOURCE`")
        found = read_embeddings(folder / INDEX)
        self.header, self.entries, self.vectors = found.header, found.entries, found.vectors
        make_unit_rows(self.vectors)

    def search(self, queries: Vectors, k: int) -> Neighbours:
        """Find the k nearest to unit vectors [Q, D] by cosine."""
        check_request(queries, k, self.vectors.shape[1])
        positions, scores = nearest(self.vectors, queries, k)
        return Neighbours([[self.entries[row] for row in rows] for rows in positions.tolist()], scores)

"""One explorer session: the edited kinds, their journal, and what is computed from them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import MaskconError
from maskcon.app import layout, queues
from maskcon.app.background import Background, Report
from maskcon.app.csv_writer import CsvWriter
from maskcon.app.images import MissingImageError, SessionImages
from maskcon.app.page_data import PageData
from maskcon.app.search import Uploads, search
from maskcon.app.sheet import sheet_html
from maskcon.discovery.columns import GoneError, Snapshot
from maskcon.discovery.edit_kinds import read_request
from maskcon.discovery.journal import Journal, Replay, record_of, take_of
from maskcon.discovery.kinds import Embedded
from maskcon.discovery.kinds_export import export_kinds
from maskcon.discovery.kinds_folder import CSV

EXPORT = "export"  # in the folder of the kinds
MAP, PREPARATION = "map", "preparation"  # background tasks


@dataclass(frozen=True, eq=False)
class Opened:
    """The parts of a workspace; `stack` holds the folder's lock.

    Attributes:
        folder: where the kinds are.
        name, source: names of the run and of its images to show.
        command: command that trains with the names; None where that is impossible.
        vectors: unit rows [N, D]; a row per image of the kinds.
        digest: checksum of the embeddings.
        run: folder of the run that encodes uploads; None if there is only an embeddings file.
    """

    folder: Path
    name: str
    source: str
    command: str | None
    vectors: NDArray[np.float32]
    digest: str
    images: SessionImages
    replay: Replay
    journal: Journal
    run: Path | None
    stack: ExitStack


class Workspace:
    """Reads and edits for the page. Every method may be called from any thread."""

    def __init__(self, opened: Opened) -> None:
        self.opened = opened
        self.folder, self.images = opened.folder, opened.images
        self.editor, self.vectors = opened.replay.editor, opened.vectors
        self.lock = threading.RLock()
        self.page = PageData(self.editor)
        self.uploads = None if opened.run is None else Uploads(opened.run)
        self._background = Background()
        self._map = layout.read_map(self.folder, opened.digest)
        self._closing = threading.Event()
        self._exporting = threading.Lock()
        self._csv = CsvWriter(self.csv, self._newest, self._record)
        if opened.replay.by_hand:
            take = take_of(self.editor, opened.replay.by_hand)
            if take.moved or take.junk or take.restored:
                self._commit(record_of(take))
        self._background.ask(PREPARATION, self._prepare)
        if self.revision:  # a killed server may have left an older kinds.csv
            self._csv.touch()

    # ---- reading

    @property
    def csv(self) -> Path:
        """The kinds.csv that follows the edits."""
        return self.folder / CSV

    @property
    def revision(self) -> int:
        """Count the edits, undos and redos so far."""
        return self.opened.replay.revision

    @property
    def problem(self) -> str | None:
        """Message to the user on why kinds.csv does not hold the newest state, if so."""
        return self._csv.problem

    @property
    def closing(self) -> bool:
        """Whether the server is ending."""
        return self._closing.is_set()

    def state(self) -> dict[str, Any]:
        """Describe the session and every class."""
        with self.lock:
            return {
                "revision": self.revision,
                "run": self.opened.name,
                "source": self.opened.source,
                "images": len(self.editor.paths),
                "images_version": self.opened.digest[:12],
                "can_undo": self.editor.last_edit is not None,
                "can_redo": self.editor.can_redo,
                "last_edit": self.editor.last_edit,
                "problem": self.problem,
                "classes": self.page.classes(),
                "command": self.opened.command,
                "has_map": len(self.vectors) > 0,
                "can_upload": self.uploads is not None,
            }

    def map(self) -> tuple[NDArray[np.float32], str]:
        """Return the newest map [N, 2] in -1..1, and its method: tsne or pca."""
        if self._map is None:
            self._map = self._background.ask(MAP, self._draw_map)
        if self._map is not None:
            return self._map, "tsne"
        return self._plain_map, "pca"

    @cached_property
    def _plain_map(self) -> NDArray[np.float32]:
        return layout.plain_map(self.vectors)

    def map_progress(self) -> tuple[int, int]:
        """Return how much of the t-SNE map is done, and how much there is."""
        return (1, 1) if self._map is not None else self._background.progress(MAP)

    def search(
        self,
        positive: Sequence[int],
        negative: Sequence[int],
        uploads: Sequence[str],
        coarse: str | None,
        kind: str | None,
        k: int,
    ) -> list[dict[str, Any]]:
        """Find the images nearest to some and far from others; junk takes no part."""
        for row in (*positive, *negative):
            if row >= len(self.vectors):
                raise MissingImageError(f"there is no image {row}; the last is {len(self.vectors) - 1}")
        if uploads and self.uploads is None:
            raise MaskconError(
                "an embeddings file has no encoder for new images; open a run to search by file"
            )
        given = [self.uploads.vector(name) for name in uploads if self.uploads is not None]
        with self.lock:
            among = ~self.editor.junk
            if coarse is not None:
                if coarse not in self.editor.groups:
                    raise GoneError(f"there is no coarse class {coarse!r}")
                among &= self.editor.coarse == list(self.editor.groups).index(coarse)
            if kind is not None:
                among &= self.editor.kind == self.editor.code_of(kind)
        rows, scores = search(self.vectors, positive, negative, given, among, k)
        return [
            {"id": row, "score": round(score, 4)}
            for row, score in zip(rows.tolist(), scores.tolist(), strict=True)
        ]

    def check(self, queue: str) -> list[dict[str, Any]] | tuple[int, int]:
        """Return the items of a queue, or the progress of its computation."""
        if queue == "outliers":
            with self.lock:
                return queues.open_items(self.editor, queue, queues.outliers(self.editor))
        found = self._background.ask(queue, self._mislabelled if queue == "mislabelled" else self._duplicates)
        if found is None:
            return self._background.progress(queue)
        with self.lock:
            return queues.open_items(self.editor, queue, found)

    def suggestions(self, coarse: str) -> list[dict[str, Any]]:
        """Suggest names of a class for its images without one."""
        with self.lock:
            return queues.suggestions(self.editor, self.vectors, coarse)

    def ask(self, count: int) -> list[dict[str, Any]]:
        """Choose the images whose names would help most; images whose kind a person set are known."""
        with self.lock:
            kinds = self.editor.kinds()
        return queues.questions(kinds, self._embedded, count)

    @cached_property
    def _embedded(self) -> Embedded:
        names = list(self.editor.groups)
        return Embedded(
            self.editor.paths, [names[place] for place in self.editor.coarse.tolist()], self.vectors
        )

    # ---- exports

    def sheet(self) -> bytes:
        """Draw the contact sheet: one HTML file."""
        with self.lock:
            classes = self.page.classes()
        return sheet_html(f"Kinds of {self.opened.name}", classes, self.images.thumbnail)

    def export(self, *, links: bool) -> tuple[Path, int]:
        """Write the images into folders beside the kinds; return where, and the number of images.

        Args:
            links: make links to the images in place of copies.
        """
        with self._exporting:
            with self.lock:
                rows = self.editor.snapshot().rows()
            target = self.folder / EXPORT
            return target, export_kinds(target, rows, self.images.reader(), links=links).images

    # ---- editing

    def edit(self, values: dict[str, Any]) -> dict[str, Any]:
        """Apply an edit of the user; it is on the disk when this returns."""
        values = dict(values)
        name = values.pop("edit_id", None)
        request = read_request(values)
        with self.lock:
            return self._earlier_answer(name) or self._commit(record_of(self.editor.plan(request)), name)

    def undo(self, name: str | None = None) -> dict[str, Any]:
        """Undo the newest edit."""
        with self.lock:
            if (known := self._earlier_answer(name)) is not None:
                return known
            if self.editor.last_edit is None:
                raise GoneError("there is nothing to undo")
            return self._commit({"undo": True}, name)

    def redo(self, name: str | None = None) -> dict[str, Any]:
        """Redo the edit that was undone last."""
        with self.lock:
            if (known := self._earlier_answer(name)) is not None:
                return known
            if not self.editor.can_redo:
                raise GoneError("there is nothing to redo")
            return self._commit({"redo": True}, name)

    def follow(self, name: str | None = None) -> dict[str, Any]:
        """Let the other images follow those whose kind a person set."""
        with self.lock:
            if (known := self._earlier_answer(name)) is not None:
                return known
            take = queues.following(self.editor, self._embedded)
            if not take.moved:
                raise GoneError("the answers change no other image")
            return self._commit(record_of(take), name)

    def close(self) -> None:
        """Stop background work, write kinds.csv and release the folder."""
        self._closing.set()
        self._background.close()
        try:
            self._csv.close()
        finally:
            self.opened.stack.close()

    def _earlier_answer(self, name: str | None) -> dict[str, Any] | None:
        """Return the answer to an edit that was sent before, after a lost connection."""
        known = None if name is None else self.opened.replay.answers.get(name)
        return None if known is None else {"revision": known[0], "change": known[1]}

    def _commit(self, record: dict[str, Any], name: str | None = None) -> dict[str, Any]:
        if name is not None:
            record = {**record, "id": name}
        self.opened.journal.append(record)
        text = self.opened.replay.run(record)
        self._csv.touch()
        return {"revision": self.revision, "change": text}

    def _newest(self) -> tuple[int, Snapshot]:
        with self.lock:
            return self.revision, self.editor.snapshot()

    def _record(self, record: dict[str, Any]) -> None:
        with self.lock:
            self.opened.journal.append(record)

    def _prepare(self, report: Report) -> bool:
        names = list(self.editor.groups)
        for number, name in enumerate(names):
            report(number, len(names))
            self.editor.prepare(name)
        return True

    def _draw_map(self, report: Report) -> NDArray[np.float32]:
        points = layout.neighbour_map(self.vectors, report)
        layout.keep_map(self.folder, self.opened.digest, points)
        return points

    def _mislabelled(self, report: Report) -> list[queues.Found]:
        return queues.mislabelled(self.vectors, self.editor.coarse, list(self.editor.groups), report)

    def _duplicates(self, report: Report) -> list[queues.Found]:
        return queues.duplicates(self.vectors, self.images.array, report)

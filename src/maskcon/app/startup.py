"""Open the kinds of a run, or of an embeddings file, for the explorer; find them first if there are none."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np

from maskcon._utils.errors import UsageError
from maskcon.app.images import SessionImages
from maskcon.app.thumbnails import Thumbnails
from maskcon.app.workspace import Opened, Workspace
from maskcon.config.settings import Machine, RunConfig
from maskcon.data.collection import gather
from maskcon.data.decoding import DEFAULT_SIDE, canvas_for
from maskcon.data.loading import is_path, is_there
from maskcon.data.packing import Progress
from maskcon.discovery.journal import open_journal, replay
from maskcon.discovery.kinds import Kinds, find_kinds
from maskcon.discovery.kinds_folder import CSV, STATE, Origin, lock_kinds, read_folder, write_folder
from maskcon.discovery.session import UNLABELLED, embedded_of
from maskcon.retrieval.embeddings_file import Embeddings, read_embeddings
from maskcon.retrieval.nearest import make_unit_rows
from maskcon.retrieval.store import Header
from maskcon.training.run_folder import CONFIG, ENCODER, RESULT, make_writable, read_result, source_of

FOLDER = "kinds"  # in the run's folder; holds the embeddings
EMBEDDINGS = "embeddings.parquet"
THUMBNAILS = "thumbnails.sqlite"
# methods that `maskcon train --fine` supports, and their settings; the registry would load torch
NAMED_METHODS = {"teachcon": ("w", "tau"), "maskcon": ("w", "tau"), "grafit": ("w",), "supcon": ()}


def open_workspace(
    place: Path,
    source: str | None = None,
    folder: Path | None = None,
    *,
    machine: Machine | None = None,
    outside: bool = False,
    reading: Progress | None = None,
    embedding: Progress | None = None,
    clustering: Progress | None = None,
) -> Workspace:
    """Open a run, or an embeddings file; encode nothing if there are kinds and no source is given.

    Args:
        place: folder of a finished run, or an embeddings file.
        source: images, see `maskcon.data.collection.gather`; by default those of the kinds, or else of the run.
        folder: where the kinds are; by default RUN/kinds, or NAME-kinds beside the embeddings file.
        outside: also show images outside of the source's folder.
        reading, embedding, clustering: called as f(done, total).

    Raises:
        UsageError: another process writes to the folder, or it holds kinds of other images.
    """
    machine = machine or Machine()
    if place.is_file():
        folder = folder or place.with_name(f"{place.stem}-kinds")
        return _opened(place, None, source, folder, machine, outside, clustering)
    folder = folder or place / FOLDER
    if source is not None or not (folder / STATE).is_file():
        from maskcon.api import Run
        from maskcon.api.kinds import open_kinds
        from maskcon.report.contact_sheet import draw_sheets

        run = Run.open(place)
        with open_kinds(run, source, folder, machine=machine, reading=reading, embedding=embedding) as (
            session,
            _,
        ):
            found = session.next_kinds(progress=clustering)
            sheets = draw_sheets(folder, found, session.read_pixels, session.origin.sheets)
            session.save(found, sheets=sheets)
    if not (place / RESULT).is_file():
        raise UsageError(f"{place} is not a finished run; train it first, or give an embeddings file")
    return _opened(folder / EMBEDDINGS, place, None, folder, machine, outside, clustering)


def _opened(
    file: Path,
    run: Path | None,
    source: str | None,
    folder: Path,
    machine: Machine,
    outside: bool,
    clustering: Progress | None,
) -> Workspace:
    with ExitStack() as stack:
        make_writable(folder)
        stack.enter_context(lock_kinds(folder))
        embeddings = read_embeddings(file)
        header = embeddings.header
        data_root = None if machine.data_root is None else Path(machine.data_root)
        config = None if run is None else RunConfig.from_yaml(run / CONFIG)
        if source is None and run is not None and config is not None and not header.root:
            source = source_of(run, config.source, read_result(run))  # the run's own images
        if source is not None:
            given = gather(source, canvas=_canvas(header), channels=3, root=data_root)
            header = replace(header, source=given.source, root=given.root)
        make_unit_rows(embeddings.vectors)
        kinds, origin = _kinds(folder, embeddings, clustering)
        if run is not None and origin.encoder != _digest(run / ENCODER):
            raise UsageError(
                f"the kinds in {folder} were found with another model; run `maskcon kinds {run} --refresh` first"
            )
        embedded = embedded_of(embeddings)
        rows = _rows(kinds, embedded.paths, folder)
        found = replay(folder, kinds, embedded)
        thumbnails = Thumbnails(folder / THUMBNAILS)
        stack.callback(thumbnails.close)
        images = SessionImages(
            header,
            [embeddings.entries[row] for row in rows],
            thumbnails,
            canvas=_canvas(header),
            data_root=data_root,
            outside=outside,
        )
        in_order = rows == list(range(len(embedded.paths)))
        return Workspace(
            Opened(
                folder=folder,
                name=file.stem if run is None else run.resolve().name,
                source=header.source,
                command=_train_command(header.source, folder / CSV, kinds, data_root, config),
                vectors=embeddings.vectors if in_order else embeddings.vectors[np.array(rows)],
                digest=embeddings.digest,
                images=images,
                replay=found,
                journal=open_journal(folder),
                run=run,
                stack=stack.pop_all(),
            )
        )


def _train_command(
    source: str, csv: Path, kinds: Kinds, data_root: Path | None, config: RunConfig | None
) -> str | None:
    """Return the command that trains like the run, with the names; None without coarse labels or a source."""
    if not is_there(source) or set(kinds.classes) == {UNLABELLED}:
        return None
    words = ["maskcon", "train", source, "--fine", str(csv.resolve())]
    if config is not None and config.freeze:
        words += ["--thaw", str(config.thaw)] if config.thaw else ["--freeze"]
    if config is not None and config.method in NAMED_METHODS:
        words += ["--method", config.method]
        for name in NAMED_METHODS[config.method]:
            words += [f"--{name}", f"{getattr(config, name):g}"]
    if data_root is not None and not is_path(source):
        words += ["--data-root", str(data_root.resolve())]
    return shlex.join(words)


def _kinds(folder: Path, embeddings: Embeddings, clustering: Progress | None) -> tuple[Kinds, Origin]:
    """Read the kinds of a folder; find them if there are none."""
    found = read_folder(folder)
    if found is None:
        origin = Origin(embeddings.header.encoder, embeddings.header.source)
        write_folder(folder, find_kinds(embedded_of(embeddings), progress=clustering), origin)
        found = read_folder(folder)
        assert found is not None  # written just now
    return found


def _rows(kinds: Kinds, paths: Sequence[str], folder: Path) -> list[int]:
    """Return the row of the embedding of each image of the kinds."""
    place = {path: row for row, path in enumerate(paths)}
    missing = [row.path for row in kinds.rows if row.path not in place]
    if missing:
        raise UsageError(
            f"{folder} holds kinds of images that are not embedded, such as {missing[0]}; run `maskcon kinds` first, "
            "or give another --out"
        )
    return [place[row.path] for row in kinds.rows]


def _canvas(header: Header) -> int:
    """Return the side at which the images of a dataset were decoded to be embedded."""
    side = header.details.get("image_size")
    return canvas_for(side) if isinstance(side, int) else DEFAULT_SIDE


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

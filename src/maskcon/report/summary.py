"""Write the report of finished runs: read their folders, embed a sample of test images, write the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import MaskconError, UsageError
from maskcon._utils.text import counted
from maskcon.api import Run
from maskcon.config.settings import Machine
from maskcon.data import Dataset, ImageSet
from maskcon.report.kinds import kinds_of, kinds_section, verdict
from maskcon.report.origin import about, reasons_of, train_command
from maskcon.report.sample import Sample
from maskcon.report.tables import shown_name
from maskcon.report.write import ReportInputs, RunRecord, curve_names, write_report
from maskcon.training.callbacks import Callback
from maskcon.training.distributed import usable_device
from maskcon.training.journal import read_journal
from maskcon.training.run_folder import JOURNAL, check_place, short_name
from maskcon.training.setup import load_dataset

Progress = Callable[[int, int], None]  # done, in all

MAP_IMAGES = 5000  # points of all maps together; more would crowd the map and slow down the page
FEWEST_IMAGES = 1000  # points of a map, for any number of encoders
QUERIES = 10
CHANGED = (
    "The images have changed since the run was trained. The map and the neighbours show the current images; recall and "
    "curves are of the original ones."
)


class _Reader(Callback):
    """Forward the progress of reading images."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress

    def on_load(self, done: int, total: int) -> None:
        self.progress(done, total)


def write_summary(
    folders: Sequence[Path],
    target: Path,
    *,
    machine: Machine | None = None,
    command: str = "",
    title: str = "",
    images: int | None = None,
    data: Dataset | None = None,
    message: Callable[[str], None] = lambda text: None,  # noqa: ARG005
    reading: Progress = lambda done, total: None,  # noqa: ARG005
    embedding: Progress = lambda done, total: None,  # noqa: ARG005
) -> Path:
    """Write the report of these runs into `target` and return the path of the page.

    Map and neighbours show only the first of runs that differ only in their seed.

    Args:
        folders: of finished runs.
        target: folder for the page, its figures and tables.
        machine: folder of the datasets, and the device to embed on.
        command: trains all runs and writes the page; by default the page lists each run's own command.
        title: of the page.
        images: most test images on the map; by default 5000, fewer where several encoders are shown.
        data: the `Dataset` of runs that were fitted on arrays.
        message: called with notes while the report is written.
        reading: called as reading(done, in all) while images are decoded.
        embedding: called as embedding(done, in all) while images are embedded.
    """
    machine = machine or Machine()
    runs = _labelled([Run.open(folder) for folder in folders])
    first = next(iter(runs.values()))
    usable_device(machine.device)  # before anything slow
    check_place(target, None if data else first.source)
    results = {label: {**run.result, "settings": run.config.model_dump()} for label, run in runs.items()}
    kinds = curve_names([RunRecord(label, result) for label, result in results.items()])
    shown: dict[str, Run] = {}
    for label, run in runs.items():
        shown.setdefault(kinds[label], run)
    known = _data_of(list(runs.values()), machine, data, reading)
    found = known[first.result["data"]]
    changed = found.fingerprint() != first.result["data"]
    on_map = {
        label: (run, own)
        for label, run in shown.items()
        if (own := known.get(run.result["data"])) is not None and _same_images(own.test, found.test)
    }
    notes = [CHANGED] if changed else []
    if left_out := [label for label in shown if label not in on_map]:
        notes.append(f"Not on the map, because their images differ or are missing: {', '.join(left_out)}.")
    for note in notes:
        message(note)
    origins = {label: reasons_of(run) for label, run in runs.items()}
    rerun = [("Train the runs that are not finished, and write this page again:", command)] if command else []
    if not command and data is None:
        same = "" if changed else ", with the same result"
        for label, run in runs.items():
            words = label if len(runs) > 1 else f"Train it again{same}"
            rerun.append((f"{words}:", train_command(run, origins[label][1], machine)))
    source = short_name(first.config.source)
    sample = _sample(on_map, notes, images, machine.device, message, embedding)
    finer = kinds_of(first.folder / "kinds", first.encoder_digest()) if len(runs) == 1 else None
    opening: list[str] = []
    if len(runs) == 1 and sample.embeddings:
        opening = verdict(
            sample, first.config.model_dump(), None if finer is None else finer[0], str(folders[0])
        )
    inputs = ReportInputs(
        title=title or f"{source}: {', '.join(dict.fromkeys(_title(run) for run in runs.values()))}",
        runs=[
            RunRecord(label, results[label], read_journal(run.folder / JOURNAL), origins[label][0])
            for label, run in runs.items()
        ],
        sample=sample,
        about=about([run for run in runs.values() if run.result["data"] in known], found),
        rerun=rerun,
        verdict=opening,
        kinds=None if finer is None else kinds_section(*finer),
    )
    try:
        return write_report(inputs, target)
    except OSError as error:
        raise MaskconError(
            f"could not write the report into {target}: {error.strerror or error}; make room, or choose another --out"
        ) from error


def _labelled(runs: Sequence[Run]) -> dict[str, Run]:
    """Label the runs by the shortest names that are unique."""
    if len({run.folder.resolve() for run in runs}) < len(runs):
        raise UsageError("the same run folder was given twice; name each once")
    ways: Sequence[Callable[[Run], str]] = (
        lambda run: f"{run.config.method}-seed{run.config.seed}",
        lambda run: run.folder.name,  # the same method with other settings
    )
    for name in ways:
        labelled = {name(run): run for run in runs}
        if len(labelled) == len(runs):
            return labelled
    return {str(run.folder): run for run in runs}  # folders of the same name


def _title(run: Run) -> str:
    name = shown_name(run.config.method, run.config.coarse_weight)
    kind = "thawed" if run.config.thaw else "frozen"
    return f"{name} on a {kind} backbone" if run.config.freeze else name


def _data_of(
    runs: Sequence[Run], machine: Machine, given: Dataset | None, reading: Progress
) -> dict[str, Dataset]:
    """Load the data of the runs, by fingerprint.

    The first run's data are always loaded, the others' only if they have the same source and are unchanged. Runs may
    have stored the same images in different sizes.
    """
    callback = _Reader(reading)
    first = runs[0]
    known = {first.result["data"]: load_dataset(given or first.source, first.config, machine, callback)}
    for run in runs[1:]:
        key = run.result["data"]
        if key in known or (given is None and _recorded_source(run) != _recorded_source(first)):
            continue
        with suppress(MaskconError):  # the run is then in the table, but not on the map
            data = load_dataset(given or run.source, run.config, machine, callback)
            if data.fingerprint() == key:
                known[key] = data
    return known


def _recorded_source(run: Run) -> str:
    return str(run.result.get("source_path", run.config.source))


def _same_images(part: ImageSet, other: ImageSet) -> bool:
    """Whether two test parts hold the same images in the same order, in any size."""
    return (
        part.paths == other.paths
        and np.array_equal(part.index, other.index)
        and np.array_equal(part.finest, other.finest)
    )


def _sample(
    runs: Mapping[str, tuple[Run, Dataset]],
    notes: Sequence[str],
    images: int | None,
    device: str,
    message: Callable[[str], None],
    embedding: Progress,
) -> Sample:
    """Embed test images with each run, in the size it was trained on; show them in the largest of these."""
    most = images or max(FEWEST_IMAGES, MAP_IMAGES // len(runs))
    parts = {label: data.limited(None, most).test for label, (_, data) in runs.items()}
    test = max(parts.values(), key=lambda part: max(part.images.shape[2:]))
    _, data = next(iter(runs.values()))
    total = len(test) * len(runs)
    message(f"embedding {counted(len(test), 'test image')} and laying out their map")
    embeddings: dict[str, NDArray[Any]] = {}
    for label, (run, _) in runs.items():
        before = len(test) * len(embeddings)

        def show(done: int, _: int, before: int = before) -> None:
            embedding(before + done, total)

        embeddings[label] = run.encode_set(parts[label], device=device, progress=show).numpy()
    return Sample(
        images=test.images if test.sizes is None else [test.image(row) for row in range(len(test))],
        coarse=test.coarse,
        coarse_names=data.coarse_names,
        embeddings=embeddings,
        queries=_spread_over_classes(test.finest, QUERIES),
        fine=test.fine,
        fine_names=data.fine_names,
        ids=test.paths if test.paths is not None else [f"image {index}" for index in test.index.tolist()],
        note=" ".join(notes),
    )


def _spread_over_classes(labels: np.ndarray, count: int) -> np.ndarray:
    """Return the rows of the first image of each class, then of the second of each, ... up to `count`."""
    ranks: dict[int, int] = {}  # label -> rank of its latest image within the class
    rank = np.empty(len(labels), dtype=np.int64)
    for row, label in enumerate(labels.tolist()):
        rank[row] = ranks[label] = ranks.get(label, -1) + 1
    return np.lexsort((labels, rank))[:count]

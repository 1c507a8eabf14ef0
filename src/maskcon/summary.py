"""From finished runs to a report: reads their folders, embeds a sample of test images, writes the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from maskcon.config import Machine
from maskcon.evaluate import nearest
from maskcon.report.journal import read_journal
from maskcon.report.run_settings import curve_names
from maskcon.report.tables import METHOD_NAMES
from maskcon.report.write import ReportInputs, Sample, write_report
from maskcon.run import Run, data_of
from maskcon.run_folder import JOURNAL, short_name

MAP_IMAGES = 1000  # points of the map; more would crowd it and slow the page
QUERIES = 10
NEIGHBOURS = 10


def write_summary(
    folders: Sequence[Path],
    target: Path,
    *,
    machine: Machine | None = None,
    command: str = "",
    title: str = "",
) -> Path:
    """Write the report of these runs into `target`; the page's path. Of runs that differ in their seed alone, the
    first is pictured.
    """
    runs = [Run.open(folder) for folder in folders]
    labels = [f"{run.config.method}-seed{run.config.seed}" for run in runs]
    if len(set(labels)) < len(labels):  # the same method with other settings
        labels = [folder.name for folder in folders]
    if len(set(labels)) < len(labels):  # in folders of the same name
        labels = [str(folder) for folder in folders]
    source = short_name(runs[0].config.source)
    journals = {label: read_journal(run.folder / JOURNAL) for label, run in zip(labels, runs, strict=True)}
    kinds = curve_names(journals)
    pictured: dict[str, Run] = {}
    for label, run in zip(labels, runs, strict=True):
        pictured.setdefault(kinds[label], run)
    inputs = ReportInputs(
        title=title or f"{source}: {', '.join(dict.fromkeys(_title(run) for run in runs))}",
        command=command,
        results=[{**run.result, "settings": run.config.model_dump()} for run in runs],
        journals=journals,
        sample=_sample(pictured, machine or Machine()),
    )
    return write_report(inputs, target)


def _title(run: Run) -> str:
    return METHOD_NAMES.get(run.config.method, run.config.method)


def _sample(runs: Mapping[str, Run], machine: Machine) -> Sample:
    """Test images of the first run's data, seen by all runs on the same data."""
    first = next(iter(runs.values()))
    data = data_of(first, machine).limited(None, MAP_IMAGES)
    test = data.test
    embeddings = {
        label: run.encode_set(test)
        for label, run in runs.items()
        if run.result["data"] == first.result["data"]
    }
    queries = _spread_over_classes(test.finest, QUERIES)
    rows = torch.from_numpy(queries)
    return Sample(
        images=test.images if test.sizes is None else [test.picture(row) for row in range(len(test))],
        coarse=test.coarse,
        coarse_names=data.coarse_names,
        embeddings={label: values.numpy() for label, values in embeddings.items()},
        queries=queries,
        neighbours={
            label: nearest(values, rows, NEIGHBOURS)[0].numpy() for label, values in embeddings.items()
        },
        fine=test.fine,
        fine_names=data.fine_names,
    )


def _spread_over_classes(labels: np.ndarray, count: int) -> np.ndarray:
    """Rows of the first image of each class, then of each class's second, ... up to `count`."""
    seen: dict[int, int] = {}
    turn = np.empty(len(labels), dtype=np.int64)
    for row, label in enumerate(labels.tolist()):
        turn[row] = seen[label] = seen.get(label, -1) + 1
    return np.lexsort((labels, turn))[:count]

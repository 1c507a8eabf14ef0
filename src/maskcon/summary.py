"""From finished runs to a report: reads their folders, embeds a sample of test images, writes the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from maskcon.config import Machine
from maskcon.evaluate import nearest
from maskcon.report.journal import read_journal
from maskcon.report.tables import METHOD_NAMES
from maskcon.report.write import ReportInputs, Sample, write_report
from maskcon.run import Run, data_of
from maskcon.run_folder import JOURNAL

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
    """Write the report of these runs into `target`; the page's path. The first seed of each method is pictured."""
    runs = [Run.open(folder) for folder in folders]
    labels = [f"{run.config.method}-seed{run.config.seed}" for run in runs]
    if len(set(labels)) < len(labels):  # the same method with other settings
        labels = [folder.name for folder in folders]
    source = Path(runs[0].config.source).name
    inputs = ReportInputs(
        title=title or f"{source}: {', '.join(dict.fromkeys(_title(run) for run in runs))}",
        command=command,
        results=[run.result for run in runs],
        journals={label: read_journal(run.folder / JOURNAL) for label, run in zip(labels, runs, strict=True)},
        sample=_sample(runs, machine or Machine()),
    )
    return write_report(inputs, target)


def _title(run: Run) -> str:
    return METHOD_NAMES.get(run.config.method, run.config.method)


def _sample(runs: Sequence[Run], machine: Machine) -> Sample:
    """Test images of the first run's data, seen by the first run of each method."""
    first = runs[0]
    data = data_of(first, machine).limited(None, MAP_IMAGES)
    test = data.test
    pictured: dict[str, Run] = {}
    for run in runs:
        if run.result["data"] == first.result["data"]:
            pictured.setdefault(_title(run), run)
    embeddings = {label: run.encode_set(test) for label, run in pictured.items()}
    queries = _spread_over_classes(test.finest, QUERIES)
    rows = torch.from_numpy(queries)
    return Sample(
        images=test.images,
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

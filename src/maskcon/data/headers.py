"""What is known of many images before they are decoded: size and kind by their headers, labels and parts."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from maskcon.data.dataset import Dataset
from maskcon.data.decoding import Shape, UndecodableError, decompression_bombs_refused, read_shape
from maskcon.data.packing import Contents, ImagePlan, Packed, Progress, map_files, opened

MANY = 1000  # fewer are read in no time, without a word of progress
LOOKED_AT = 64  # images whose headers give the usual size


def read_headers(
    root: Path,
    paths: Sequence[str],
    contents: Contents | None = None,
    progress: Progress | None = None,
) -> list[Shape | str]:
    """Read the header of root/path for each path, or why it cannot be read.

    contents: reads paths that are no files.

    progress is called where they are many.
    """

    def work(row: int) -> Shape | str:
        try:
            return read_shape(opened(root, paths[row], contents))
        except UndecodableError as error:
            return str(error)

    return map_files(work, len(paths), progress if len(paths) >= MANY else None)


def labels_only(plan: ImagePlan, failures: Mapping[int, str] | None = None) -> Dataset:
    """Make the dataset of a plan with blank 1 x 1 images: labels, parts and notes only.

    failures: place in the plan's paths -> why that image cannot be read, as far as is known.
    """
    failures = dict(failures or {})
    kept = np.array([row for row in range(len(plan.job.paths)) if row not in failures], dtype=np.int64)
    blank = np.zeros((1, plan.job.channels, 1, 1), dtype=np.uint8)
    images = np.broadcast_to(blank, (len(kept), *blank.shape[1:]))  # takes no memory
    return plan.dataset(Packed(images, np.ones((len(kept), 2), dtype=np.int32), kept, failures))


def usual_side(plan: ImagePlan) -> float | None:
    """Estimate the median shorter side from a sample of images; None if unreadable."""
    paths = plan.job.paths
    spread = {place * len(paths) // LOOKED_AT for place in range(LOOKED_AT)} if paths else set()
    sides = []
    with decompression_bombs_refused():
        for place in sorted(spread):
            try:
                shape = read_shape(opened(plan.job.root, paths[place], plan.job.contents))
            except UndecodableError:
                continue
            sides.append(min(shape.width, shape.height))
    return float(statistics.median(sides)) if sides else None

"""What is known of many images before they are decoded: size and kind by their headers."""

from __future__ import annotations

import statistics

from maskcon.data.decoding import Shape, UndecodableError, decompression_bombs_refused, read_shape
from maskcon.data.folder_layout import Layout
from maskcon.data.packing import ImagePlan, Progress, map_files

MANY = 1000  # fewer are read in no time, without a word of progress
LOOKED_AT = 64  # images whose headers give the usual size


def read_headers(layout: Layout, progress: Progress | None = None) -> list[Shape | str]:
    """Read the header of each image, or why it cannot be read; progress is called where they are many."""

    def work(row: int) -> Shape | str:
        try:
            return read_shape(layout.open(layout.files[row].path))
        except UndecodableError as error:
            return str(error)

    return map_files(work, len(layout.files), progress if len(layout.files) >= MANY else None)


def usual_side(plan: ImagePlan) -> float | None:
    """Estimate the median shorter side from a sample of images; None if unreadable."""
    count = len(plan.files)
    sides = []
    with decompression_bombs_refused():
        for row in sorted({place * count // LOOKED_AT for place in range(LOOKED_AT)} if count else ()):
            try:
                shape = read_shape(plan.open(row))
            except UndecodableError:
                continue
            sides.append(min(shape.width, shape.height))
    return float(statistics.median(sides)) if sides else None

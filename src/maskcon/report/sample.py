"""A sample of test images embedded by each encoder: neighbours, maps, statistics and retrievals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import UsageError
from maskcon.report.figures import embedding_map
from maskcon.report.formats import Table
from maskcon.report.gallery import Images, PageRetrieval
from maskcon.report.maps import PageMap, map_2d
from maskcon.report.neighbourhood import (
    Neighbourhood,
    measures_table,
    neighbourhood,
    suspect_labels,
)
from maskcon.report.page import PageFigure

SUSPECTS = 8  # images shown whose neighbours carry another label


@dataclass(frozen=True)
class Sample:
    """A sample of test images and their embeddings by each encoder.

    embeddings has one entry per encoder, under the label that the page shows; ids name the images, mostly by path;
    note is shown beside everything that comes from these images.
    """

    images: Images  # N
    coarse: NDArray[Any]  # [N]
    coarse_names: Sequence[str]
    embeddings: Mapping[str, NDArray[Any]]  # each [N, D]
    queries: NDArray[Any] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # [Q] rows of images
    fine: NDArray[Any] | None = None  # [N]
    fine_names: Sequence[str] | None = None
    ids: Sequence[str] = ()
    note: str = ""

    @property
    def finest(self) -> tuple[str, NDArray[Any], Sequence[str]]:
        """Return the finest labels known: the kind of label, the labels [N], and their names."""
        if self.fine is None or self.fine_names is None:
            return "coarse class", np.asarray(self.coarse), self.coarse_names
        return "fine class", np.asarray(self.fine), self.fine_names


def neighbours_of(sample: Sample) -> dict[str, Neighbourhood]:
    """Find the neighbours of all images, by encoder."""
    for label, embeddings in sample.embeddings.items():
        if len(embeddings) != len(sample.images):
            raise UsageError(
                f"{label!r} has {len(embeddings)} embeddings for {len(sample.images)} images of the sample"
            )
    return {label: neighbourhood(embeddings) for label, embeddings in sample.embeddings.items()}


def map_of(
    sample: Sample, near: Mapping[str, Neighbourhood], seed: int
) -> tuple[PageMap, dict[str, PageFigure]]:
    """Make the map of the page, and the same as figures by file name."""
    layouts = {label: map_2d(embeddings, seed) for label, embeddings in sample.embeddings.items()}
    labels: dict[str, tuple[NDArray[Any], Sequence[str]]] = {
        "Coarse label": (sample.coarse, sample.coarse_names)
    }
    if sample.fine is not None and sample.fine_names is not None:
        labels = {"Fine label": (sample.fine, sample.fine_names), **labels}
    kinds, names = next(iter(labels.values()))
    figures = {
        f"map_{file_part(label, number)}": PageFigure(
            embedding_map(
                points, kinds, names, coarse=sample.coarse, coarse_names=sample.coarse_names, title=label
            ),
            f"Map of the embeddings of {label}.",
        )
        for number, (label, points) in enumerate(layouts.items())
    }
    return PageMap(layouts, sample.images, labels, sample.ids, near), figures


def statistics_of(sample: Sample, near: Mapping[str, Neighbourhood]) -> dict[str, Table]:
    """Make the tables of the embeddings, by file name."""
    if len(sample.images) < 2:
        return {}
    return {"neighbours": measures_table(near, np.asarray(sample.coarse), sample.fine)}


def retrievals_of(sample: Sample, near: Mapping[str, Neighbourhood]) -> list[PageRetrieval]:
    """Collect the neighbours of the queries per encoder; for a single encoder also of images with a suspect label."""
    kind, labels, names = sample.finest
    others = len(sample.images) - 1
    if not others or not len(sample.queries):
        return []
    signs = (
        "Tick: the same fine class; cross: another."
        if sample.fine is not None
        else "A cross and a dashed frame mark another coarse class."
    )
    found = []
    for label, around in near.items():
        queries = np.asarray(sample.queries, dtype=np.int64)
        grid = _grid(sample, around, queries, labels, names, both_ways=sample.fine is not None)
        same = labels[grid.neighbours] == labels[grid.queries][:, None]
        note = (
            f"{len(grid.queries)} queries on the left, each with its {grid.neighbours.shape[1]} nearest by "
            f"cosine among the other {others:,} images. {int(same.sum())} of {same.size} are of the query's {kind}. "
        )
        found.append(replace(grid, title=label, note=note + signs))
    if len(near) == 1:
        (around,) = near.values()
        coarse = np.asarray(sample.coarse)
        rows = suspect_labels(around, coarse, SUSPECTS)
        if len(rows):
            grid = _grid(sample, around, rows, coarse, sample.coarse_names, both_ways=False)
            note = (
                "Most of the nearest images carry one other coarse label: the label may be wrong, or the two classes "
                "may look alike. A cross marks another coarse class."
            )
            found.append(replace(grid, title="Suspect coarse labels", note=note))
    return found


def _grid(
    sample: Sample,
    around: Neighbourhood,
    queries: NDArray[np.int64],
    labels: NDArray[Any],
    names: Sequence[str],
    *,
    both_ways: bool,
) -> PageRetrieval:
    """Collect neighbours, marked where their label differs from the query's; both_ways: also where it is the same."""
    neighbours = around.positions[queries]
    same = labels[neighbours] == labels[queries][:, None]
    return PageRetrieval(
        title="",
        note="",
        images=sample.images,
        queries=queries,
        neighbours=neighbours,
        cosines=around.cosines[queries],
        names=[str(names[label]) for label in labels.tolist()],
        ids=list(sample.ids) or [f"image {row}" for row in range(len(sample.images))],
        marks=np.where(same, 1 if both_ways else 0, -1),
    )


def file_part(label: str, number: int) -> str:
    """Turn a label into a part of a file name: letters and digits only, made unique by its number."""
    plain = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in label.lower())
    return f"{number}_{plain[:40]}".rstrip("_")

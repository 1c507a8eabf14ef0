"""A sample of test images embedded by each encoder: nearest neighbours, labels that they contradict, retrievals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from maskcon.report.gallery import Images, fitted, image_uri
from maskcon.report.page import part
from maskcon.retrieval.nearest import nearest_others, unit_rows

HTML_TILE_PIXELS = 96
EXACT_SIDE = 32  # images up to this side are lossless, and enlarged by the browser
SUSPECTS = 8  # images shown whose neighbours carry another label
NEIGHBOURS = 10
SUSPECT_SHARE = 0.6  # of the neighbours with one other label: a wrong label, or classes that look alike


@dataclass(frozen=True)
class Neighbourhood:
    """The nearest other images of every image by cosine, best first.

    positions: [N, k] rows of the images, k = 10, or N - 1 if that is less
    cosines:   [N, k]
    """

    positions: NDArray[np.int64]
    cosines: NDArray[np.float64]


def neighbourhood(embeddings: NDArray[Any], k: int = NEIGHBOURS) -> Neighbourhood:
    """Find the exact neighbours of all N rows of [N, D], without the row itself.

    >>> neighbourhood(np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]), k=1).positions.tolist()
    [[1], [0], [1]]
    """
    unit = unit_rows(np.asarray(embeddings))
    positions, cosines = nearest_others(unit, np.arange(len(unit)), k)
    return Neighbourhood(positions, np.clip(cosines, -1.0, 1.0))


def suspect_labels(near: Neighbourhood, labels: NDArray[Any], most: int) -> NDArray[np.int64]:
    """Find up to `most` images whose neighbours mostly have one other label, the clearest first.

    Images of classes too small to fill the neighbourhood are left out.
    """
    count, k = near.positions.shape
    if not near.positions.size:
        return np.zeros(0, dtype=np.int64)
    around = np.zeros((count, int(labels.max()) + 1))
    np.add.at(around, (np.repeat(np.arange(count), k), labels[near.positions].reshape(-1)), 1.0)
    around[np.arange(count), labels] = 0
    share = around.max(axis=1) / k  # [N]
    companions = np.bincount(labels)[labels] - 1  # [N]
    suspect = (share >= SUSPECT_SHARE) & (companions > (1 - SUSPECT_SHARE) * k)
    order = np.lexsort((-near.cosines.mean(axis=1), -share))
    chosen: NDArray[np.int64] = order[suspect[order]][:most]
    return chosen


@dataclass(frozen=True)
class Sample:
    """A sample of test images and their embeddings by each encoder.

    embeddings has one entry per encoder, under the label that the page shows; ids are names of the images, such as
    paths; note is shown in the summary of the page.
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

    @cached_property
    def shown_ids(self) -> list[str]:
        """Name every image by its id, or else by its row."""
        return [str(name) for name in self.ids] or [f"image {row}" for row in range(len(self.images))]

    @property
    def finest(self) -> tuple[str, NDArray[Any], Sequence[str]]:
        """Return the finest labels known: the kind of label, the labels [N], and their names."""
        if self.fine is None or self.fine_names is None:
            return "coarse class", np.asarray(self.coarse), self.coarse_names
        return "fine class", np.asarray(self.fine), self.fine_names


def neighbours_of(sample: Sample) -> dict[str, Neighbourhood]:
    """Find the neighbours of all images, by encoder."""
    return {label: neighbourhood(embeddings) for label, embeddings in sample.embeddings.items()}


@dataclass(frozen=True)
class PageRetrieval:
    """Queries [Q] of a sample with their neighbours [Q, k]; title and note describe them.

    names: the class of every image
    marks [Q, k]: 1 for the query's class (a tick), -1 for another (a cross), 0 for none
    """

    title: str
    note: str
    sample: Sample
    near: Neighbourhood
    queries: NDArray[np.int64]
    names: Sequence[str]
    marks: NDArray[Any]

    @property
    def neighbours(self) -> NDArray[np.int64]:
        """Return the rows [Q, k] of the nearest images, best first."""
        found: NDArray[np.int64] = self.near.positions[self.queries]
        return found


def retrievals_of(sample: Sample, near: Mapping[str, Neighbourhood]) -> list[PageRetrieval]:
    """Collect the neighbours of the queries by encoder; for a single encoder also of images with a suspect label."""
    kind, labels, names = sample.finest
    others = len(sample.images) - 1
    if not others or not len(sample.queries):
        return []
    signs = (
        "Tick: the same fine class; cross: another."
        if sample.fine is not None
        else "A cross and a dashed frame mark another coarse class."
    )
    queries = np.asarray(sample.queries, dtype=np.int64)
    found = []
    for label, around in near.items():
        same = _same(around, queries, labels)
        note = (
            f"{len(queries)} queries on the left, each with its {same.shape[1]} nearest by "
            f"cosine among the other {others:,} images. {int(same.sum())} of {same.size} are of the query's {kind}. "
        )
        marks = np.where(same, 0 if sample.fine is None else 1, -1)
        shown_names = [str(names[one]) for one in labels.tolist()]
        found.append(PageRetrieval(label, note + signs, sample, around, queries, shown_names, marks))
    if len(near) == 1:
        (around,) = near.values()
        coarse = np.asarray(sample.coarse)
        rows = suspect_labels(around, coarse, SUSPECTS)
        if len(rows):
            note = (
                "Most of the nearest images carry one other coarse label: the label may be wrong, or the two classes "
                "may look alike. A cross marks another coarse class."
            )
            marks = np.where(_same(around, rows, coarse), 0, -1)
            shown_names = [str(sample.coarse_names[one]) for one in coarse.tolist()]
            found.append(
                PageRetrieval("Suspect coarse labels", note, sample, around, rows, shown_names, marks)
            )
    return found


def _same(around: Neighbourhood, queries: NDArray[np.int64], labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each neighbour [Q, k] has its query's label."""
    same: NDArray[np.bool_] = labels[around.positions[queries]] == labels[queries][:, None]
    return same


def retrieval_html(grid: PageRetrieval) -> Markup:
    """Render a heading, a note, and one list per query."""
    shown = {*grid.queries.tolist(), *grid.neighbours.reshape(-1).tolist()}
    small = max(max(grid.sample.images[row].shape[1:]) for row in shown) <= EXACT_SIDE

    def tile(row: int, cosine: float, mark: int) -> dict[str, Any]:
        drawn = fitted(grid.sample.images[row], EXACT_SIDE if small else HTML_TILE_PIXELS)
        named = {"name": str(grid.names[row]), "id": grid.sample.shown_ids[row]}
        return {**named, "uri": image_uri(drawn, exact=small), "cosine": f"{cosine:.2f}", "mark": mark}

    rows = []
    for number, query in enumerate(grid.queries.tolist()):
        found = zip(grid.neighbours[number], grid.near.cosines[query], grid.marks[number], strict=True)
        rows.append([tile(query, 1.0, 0), *(tile(int(o), float(c), int(m)) for o, c, m in found)])
    return part("retrieval", grid, rows, small)


def file_part(label: str, number: int) -> str:
    """Turn a label into a part of a file name: letters, digits and underscores, unique by its number."""
    plain = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in label.lower())
    return f"{number}_{plain[:40]}".rstrip("_")

"""Nearest neighbours in an embedding, and tables of what they say about it.

near = neighbourhood(embeddings)
shared(near.positions, coarse)  # how often neighbours carry the image's own label"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskcon.report.formats import Cell, Table
from maskcon.report.tables import MISSING
from maskcon.retrieval.nearest import effective_rank, nearest_others, unit_rows

NEIGHBOURS = 10
SUSPECT_SHARE = 0.6  # of the neighbours under one other label: a wrong label, or classes that look alike


@dataclass(frozen=True)
class Neighbourhood:
    """The nearest others of every image by cosine, best first.

    positions: [N, k] rows of the images, k = 10 or N - 1 where there are fewer
    cosines:   [N, k]
    effective_rank: exponential of the entropy of the singular values, from 1 to `dimensions`
    """

    positions: NDArray[np.int64]
    cosines: NDArray[np.float64]
    effective_rank: float
    dimensions: int


def neighbourhood(embeddings: NDArray[Any], k: int = NEIGHBOURS) -> Neighbourhood:
    """Find the exact neighbours of all N rows of [N, D], without the row itself.

    >>> neighbourhood(np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]), k=1).positions.tolist()
    [[1], [0], [1]]
    """
    unit = unit_rows(np.asarray(embeddings))
    positions, cosines = nearest_others(unit, np.arange(len(unit)), k)
    return Neighbourhood(positions, np.clip(cosines, -1.0, 1.0), effective_rank(unit), unit.shape[1])


def shared(positions: NDArray[np.int64], labels: NDArray[Any]) -> tuple[float, float]:
    """Compute how often the nearest, and any of the k nearest, has the image's own label: shares in 0..1.

    >>> shared(np.array([[1, 2], [0, 2], [1, 0]]), np.array([0, 0, 1]))
    (0.6666666666666666, 0.3333333333333333)
    """
    if not positions.size:
        return 0.0, 0.0
    same = labels[positions] == labels[:, None]  # [N, k]
    return float(same[:, 0].mean()), float(same.mean())


def chance(labels: NDArray[Any]) -> float:
    """Compute how often two different random images have the same label.

    >>> chance(np.array([0, 0, 1, 1]))
    0.3333333333333333
    """
    counts = np.bincount(labels).astype(np.float64)
    pairs = len(labels) * (len(labels) - 1)
    return float((counts * (counts - 1)).sum() / pairs) if pairs else 0.0


def suspect_labels(near: Neighbourhood, labels: NDArray[Any], most: int) -> NDArray[np.int64]:
    """Find up to `most` images whose neighbours mostly carry one other label, the clearest first.

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


def measures_table(
    near: Mapping[str, Neighbourhood], coarse: NDArray[Any], fine: NDArray[Any] | None = None
) -> Table:
    """Tabulate all measures, one column per encoder."""
    most = max((found.positions.shape[1] for found in near.values()), default=0)
    rows: list[list[str | Cell]] = []

    def add(name: str, value: Callable[[Neighbourhood], str]) -> None:
        rows.append([name, *(value(found) for found in near.values())])

    add("Effective rank", lambda found: f"{found.effective_rank:.1f} of {found.dimensions}")
    for kind, given in (("coarse class", coarse), ("fine class", fine)):
        if given is None:
            continue
        shares = {label: shared(found.positions, given) for label, found in near.items()}
        rows.append([f"Nearest image of the same {kind}", *(percent(first) for first, _ in shares.values())])
        rows.append([f"{most} nearest of the same {kind}", *(percent(every) for _, every in shares.values())])
        expected = Cell(percent(chance(given)), muted=True)
        rows.append([f"Two random images of the same {kind}", *[expected] * len(near)])
    add("Cosine to the nearest, median", lambda found: _median(found.cosines[:, :1]))
    notes = ["Effective rank: how many directions the embedding uses. Near 1 it has collapsed."]
    return Table(["Measure", *near], rows, f"Over {len(coarse):,} images", notes)


def percent(share: float) -> str:
    """Format a share in 0..1 as percent.

    >>> percent(0.125)
    '12.5\\xa0%'
    """
    return f"{100 * share:.1f}\N{NO-BREAK SPACE}%"


def _median(values: NDArray[Any]) -> str:
    return f"{float(np.median(values)):.2f}" if values.size else MISSING

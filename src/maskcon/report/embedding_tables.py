"""What the neighbours in an embedding say of it, as tables: one of all measures, one of the classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskcon.report.formats import Cell, Table
from maskcon.report.neighbourhood import Neighbourhood, chance, confused_with, hubs, mutual, shared
from maskcon.report.tables import MISSING


@dataclass(frozen=True)
class Labels:
    """Labels [N] of the images looked at, and the names of their classes."""

    coarse: NDArray[Any]
    coarse_names: Sequence[str]
    fine: NDArray[Any] | None = None


def measures_table(
    near: Mapping[str, Neighbourhood], pairs: Mapping[str, NDArray[Any]], labels: Labels
) -> Table:
    """One column an encoder. `pairs` are the cosines of random pairs of images, by encoder."""
    kinds = [("coarse class", labels.coarse)]
    if labels.fine is not None:
        kinds.append(("fine class", labels.fine))
    most = max((found.positions.shape[1] for found in near.values()), default=0)
    rows: list[list[str | Cell]] = []

    def add(name: str, value: Callable[[str, Neighbourhood], str]) -> None:
        rows.append([name, *(value(label, found) for label, found in near.items())])

    add("Effective rank", lambda _, found: f"{found.effective_rank:.1f} of {found.dimensions}")
    for kind, given in kinds:
        add(f"Nearest image of the same {kind}", _share_of(given, 0))
        add(f"{most} nearest of the same {kind}", _share_of(given, 1))
        expected = percent(chance(given))
        rows.append([f"Two random images of the same {kind}", *[Cell(expected, muted=True)] * len(near)])
    add("Cosine to the nearest, median", lambda _, found: _median(found.cosines[:, :1]))
    add("Cosine of two random images, median", lambda label, _: _median(pairs[label]))
    add("Nearest to each other (mutual)", lambda _, found: percent(mutual(found.positions)))
    add("Hubness (skewness)", lambda _, found: f"{hubs(found.positions).skewness:.2f}")
    add(f"Among nobody's {most} nearest", lambda _, found: percent(hubs(found.positions).orphans))
    add(
        f"Largest hub: among the {most} nearest of",
        lambda _, found: f"{hubs(found.positions).largest_count:,} images",
    )
    notes = [
        "Effective rank: how many directions the embedding makes use of. Near 1 it has collapsed.",
        f"Hubness: how unevenly images occur among the {most} nearest of others. Near 0 all occur alike; above about "
        "1.5 a few turn up in very many answers, and many in none.",
    ]
    return Table(["Measure", *near], rows, f"Over {len(labels.coarse):,} images", notes)


def classes_table(label: str, near: Neighbourhood, labels: Labels) -> Table:
    """Coarse class by coarse class: how far its images keep to themselves, and what they are taken for."""
    counts = np.bincount(labels.coarse, minlength=len(labels.coarse_names))
    rows = []
    for kind, own, other, other_share in confused_with(
        near.positions, labels.coarse, len(labels.coarse_names)
    ):
        taken_for = MISSING if other is None else f"{labels.coarse_names[other]} ({percent(other_share)})"
        rows.append([str(labels.coarse_names[kind]), f"{counts[kind]:,}", percent(own), taken_for])
    most = near.positions.shape[1]
    columns = ["Coarse class", "Images", f"{most} nearest in it", "Otherwise mostly in"]
    return Table(columns, rows, f"{label}: where the {most} nearest of each coarse class are")


def percent(share: float) -> str:
    """A share of 1 as people read it.

    >>> percent(0.125)
    '12.5\\xa0%'
    """
    return f"{100 * share:.1f}\N{NO-BREAK SPACE}%"


def _share_of(labels: NDArray[Any], place: int) -> Callable[[str, Neighbourhood], str]:
    return lambda _, found: percent(shared(found.positions, labels)[place])


def _median(values: NDArray[Any]) -> str:
    return f"{float(np.median(values)):.2f}" if values.size else MISSING

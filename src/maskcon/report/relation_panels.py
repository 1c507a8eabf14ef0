"""Relations of a small batch, method beside method, against those that fine labels would give (fig. 1 of the paper)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import UsageError
from maskcon.report.palette import INK, PALE
from maskcon.report.plates import PAGE_INCHES, SMALL_POINTS, SMALLEST_POINTS, Plate, as_picture, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FloatArray = NDArray[np.floating[Any]]
IntArray = NDArray[np.integer[Any]]

NAMES_INCHES = 0.72  # of the fine classes, at the left of the large panel
LARGE_INCHES, SMALL_INCHES = 2.2, 1.02
COLUMNS = 3  # of small panels
TITLE_INCHES = 0.34
GAMMA = 0.5  # the root of a weight is shown: Grafit's are small, and must not look like none
TICKS = (0.0, 0.02, 0.1, 0.3, 0.6, 1.0)


@dataclass(frozen=True)
class Relation:
    """A method's relations within a batch: weights [B, B], in row i those of image i, its own key at column i."""

    title: str
    weights: FloatArray
    settings: str = ""  # such as "w = 0.5"
    d_z: float | None = None  # its mean distance from the truth


@dataclass(frozen=True)
class Batch:
    """The images [B, C, H, W] uint8 with their labels [B] and the names of the fine classes."""

    images: NDArray[np.uint8]
    coarse: IntArray
    fine: IntArray
    fine_names: Sequence[str]

    @property
    def order(self) -> IntArray:
        """Rows sorted by coarse, then by fine label."""
        return np.lexsort((self.fine, self.coarse))


def over_own_key(weights: FloatArray) -> FloatArray:
    """Each row divided by its diagonal entry, the weight of the own key, which no other exceeds.

    >>> over_own_key(np.array([[0.5, 0.25], [0.1, 0.9]]))[0].tolist()
    [1.0, 0.5]
    """
    own = np.diagonal(weights)[:, None]
    if (own <= 0).any():
        raise UsageError("a relation gives the own key no weight, so nothing can be measured by it")
    return weights / own


def relation_panels(
    truth: Relation, methods: Sequence[Relation], batch: Batch, *, caption: str = ""
) -> Figure:
    """The truth large, with pictures along its sides; each method small beside it, in the same order.

    Images are sorted by coarse, then fine label; dark lines part coarse classes, pale ones fine classes. Shown is the
    weight over that of the own key.
    """
    count = len(batch.images)
    for relation in (truth, *methods):
        if relation.weights.shape != (count, count):
            raise UsageError(
                f"{relation.title}: relations of {count} images must be [{count}, {count}], "
                f"not {list(relation.weights.shape)}"
            )
    rows = -(-len(methods) // COLUMNS)
    block = SMALL_INCHES + TITLE_INCHES + SMALL_INCHES / count
    cell = LARGE_INCHES / count
    height = max(TITLE_INCHES + cell + LARGE_INCHES, rows * block) + 0.42
    plate = Plate(width=PAGE_INCHES, height=height, caption=caption)
    left = NAMES_INCHES + cell
    _panel(plate, truth, batch, left, TITLE_INCHES + cell, LARGE_INCHES)
    _names(plate, batch, NAMES_INCHES - 0.04, TITLE_INCHES + cell, cell)
    first = left + LARGE_INCHES + 0.2
    step = (PAGE_INCHES - first - 0.06) / COLUMNS
    for number, method in enumerate(methods):
        row, column = divmod(number, COLUMNS)
        inner = SMALL_INCHES / count
        _panel(
            plate,
            method,
            batch,
            first + column * step + inner,
            row * block + TITLE_INCHES + inner,
            SMALL_INCHES,
        )
    _scale(plate, left, height - 0.3)
    return plate.figure


def _panel(plate: Plate, relation: Relation, batch: Batch, left: float, top: float, side: float) -> None:
    """One square of weights with a strip of pictures at its left and above."""
    order = batch.order
    cell = side / len(order)
    axes = plate.axes(left=left, top=top, width=side, height=side)
    shown = over_own_key(relation.weights)[np.ix_(order, order)]
    axes.imshow(shown, cmap=_colours(), norm=_norm(), interpolation="nearest", aspect="auto")
    axes.set_gid(f"relation-{relation.title}")
    _boundaries(axes, batch.coarse[order], batch.fine[order])
    pictures = [as_picture(batch.images[row]) for row in order.tolist()]
    beside = plate.axes(left=left - cell, top=top, width=cell * 0.94, height=side)
    above = plate.axes(left=left, top=top - cell, width=side, height=cell * 0.94)
    for axes_of_strip, upright in ((beside, True), (above, False)):
        for place, picture in enumerate(pictures):
            span = (place, place + 1)
            extent = (0, 1, span[1], span[0]) if upright else (*span, 1, 0)
            axes_of_strip.imshow(picture, extent=extent, aspect="auto", interpolation="antialiased")
        axes_of_strip.set_xlim(0, 1 if upright else len(order))
        axes_of_strip.set_ylim(len(order) if upright else 1, 0)
    large = side == LARGE_INCHES
    plate.words(
        left, top - cell - (0.11 if large else 0.21), relation.title, size=SMALL_POINTS + large, weight="bold"
    )
    below = [relation.settings] if relation.settings else []
    below += [] if relation.d_z is None else [f"d_z = {relation.d_z:.2f}"]
    if below:
        plate.words(left, top - cell - 0.08, "; ".join(below), size=SMALLEST_POINTS - 0.5)


def _boundaries(axes: Axes, coarse: IntArray, fine: IntArray) -> None:
    for place in range(1, len(fine)):
        if fine[place] == fine[place - 1] and coarse[place] == coarse[place - 1]:
            continue
        outer = coarse[place] != coarse[place - 1]
        for line in (axes.axhline, axes.axvline):
            line(place - 0.5, color=INK if outer else PALE, linewidth=0.9 if outer else 0.4)
    for spine in axes.spines.values():
        spine.set(visible=True, color=INK, linewidth=0.9)


def _names(plate: Plate, batch: Batch, right: float, top: float, cell: float) -> None:
    """The name of each fine class beside the middle of its rows."""
    fine = batch.fine[batch.order]
    for label in dict.fromkeys(fine.tolist()):
        places = np.flatnonzero(fine == label)
        middle = top + cell * (float(places.mean()) + 0.5)
        plate.words(right, middle, shortened(batch.fine_names[label], 13), size=SMALLEST_POINTS, ha="right")


def _scale(plate: Plate, left: float, top: float) -> None:
    """The key to the colours, below the large panel."""
    axes = plate.axes(left=left, top=top, width=LARGE_INCHES, height=0.09)
    levels = np.linspace(0, 1, 256)[None] ** (1 / GAMMA)  # even steps of colour, as the norm makes them
    axes.imshow(levels, cmap=_colours(), norm=_norm(), aspect="auto", extent=(0, 1, 0, 1))
    for spine in axes.spines.values():
        spine.set(visible=True, color=INK, linewidth=0.6)
    for tick in TICKS:
        plate.words(
            left + LARGE_INCHES * tick**GAMMA, top + 0.16, f"{tick:g}", size=SMALLEST_POINTS, ha="center"
        )
    plate.words(
        left + LARGE_INCHES + 0.12, top + 0.05, "weight, over that of the own key", size=SMALLEST_POINTS
    )


def _colours() -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    # one hue from white to nearly black: seen by all, and in print without colour
    return LinearSegmentedColormap.from_list("weights", ("#ffffff", "#9ecae1", "#2878b5", "#08306b"))


def _norm() -> Any:
    from matplotlib.colors import PowerNorm

    return PowerNorm(GAMMA, vmin=0, vmax=1)

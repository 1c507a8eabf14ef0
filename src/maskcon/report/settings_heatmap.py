"""Recall@1 over w and tau as a map of cells (fig. 2 of the paper)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import UsageError
from maskcon.report.palette import INK, PALE
from maskcon.report.plates import COLUMN_INCHES, SMALL_POINTS, SMALLEST_POINTS, Plate
from maskcon.report.tables import MISSING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FloatArray = NDArray[np.floating[Any]]

CELL_INCHES = 0.36
LEFT_INCHES, TOP_INCHES, BOTTOM_INCHES = 0.42, 0.26, 0.46
DARK_BELOW = 0.55  # of the range of colours: light letters up to here
COLOURS = "cividis"  # made for all kinds of colour vision, and even in grey


@dataclass(frozen=True)
class Grid:
    """Recall@1 in percent, [W, T]: a row a w, a column a tau; NaN where there is no number. spread: the same."""

    title: str
    percent: FloatArray
    spread: FloatArray | None = None

    @property
    def best(self) -> tuple[int, int]:
        """Row and column of the highest number; the first of equals."""
        row, column = np.unravel_index(int(np.nanargmax(self.percent)), self.percent.shape)
        return int(row), int(column)


def settings_heatmap(
    grids: Sequence[Grid], ws: Sequence[float], taus: Sequence[float], *, caption: str = ""
) -> Figure:
    """One map a grid, side by side, the best cell framed. w = 0 does not know tau: its row is one wide cell."""
    shape = (len(ws), len(taus))
    for grid in grids:
        if grid.percent.shape != shape:
            raise UsageError(
                f"{grid.title}: {shape[0]} w and {shape[1]} tau need a grid {list(shape)}, "
                f"not {list(grid.percent.shape)}"
            )
        if np.isnan(grid.percent).all():
            raise UsageError(f"{grid.title}: there is no number to draw")
    wide = (COLUMN_INCHES - LEFT_INCHES - 0.08) / len(taus)
    high = CELL_INCHES * len(ws)
    plate = Plate(width=COLUMN_INCHES * len(grids), height=TOP_INCHES + high + BOTTOM_INCHES, caption=caption)
    for number, grid in enumerate(grids):
        left = number * COLUMN_INCHES + LEFT_INCHES
        axes = plate.axes(left=left, top=TOP_INCHES, width=wide * len(taus), height=high)
        _cells(axes, grid, ws)
        plate.words(left, TOP_INCHES / 2, grid.title, size=SMALL_POINTS + 1, weight="bold")
        for column, tau in enumerate(taus):
            middle = left + wide * (column + 0.5)
            plate.words(middle, TOP_INCHES + high + 0.1, _shown(tau), ha="center")
            if tau == math.inf:
                plate.words(middle, TOP_INCHES + high + 0.22, "Grafit", size=SMALLEST_POINTS, ha="center")
        for row, w in enumerate(ws):
            plate.words(left - 0.06, TOP_INCHES + high - CELL_INCHES * (row + 0.5), f"{w:g}", ha="right")
        plate.words(
            left + wide * len(taus) / 2, TOP_INCHES + high + 0.3, "τ", size=SMALL_POINTS + 1.5, ha="center"
        )
        plate.words(left - 0.34, TOP_INCHES + high / 2, "w", size=SMALL_POINTS + 1.5, ha="center")
    return plate.figure


def _cells(axes: Axes, grid: Grid, ws: Sequence[float]) -> None:
    """The coloured cells with their numbers; rows from below, the smallest w first."""
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    low, high = float(np.nanmin(grid.percent)), float(np.nanmax(grid.percent))
    rows, columns = grid.percent.shape
    best = grid.best
    for row in range(rows):
        alone = ws[row] == 0
        for column in range(1 if alone else columns):
            value = float(grid.percent[row, column])
            share = 1.0 if high == low else (value - low) / (high - low)
            width = columns if alone else 1
            known = not math.isnan(value)
            face = colormaps[COLOURS](0.08 + 0.92 * share) if known else "#f4f4f4"
            axes.add_patch(
                Rectangle((column, row), width, 1, facecolor=face, edgecolor="white", linewidth=1.2)
            )
            light = known and share < DARK_BELOW
            colour = PALE if not known else "white" if light else INK
            text = f"{value:.1f}" if known else MISSING
            if known and grid.spread is not None:
                text += f"{' ' if alone else chr(10)}± {float(grid.spread[row, column]):.1f}"
            text += "  (SelfCon: the same for every τ)" if alone else ""
            axes.text(
                column + width / 2, row + 0.5, text, ha="center", va="center", color=colour,
                fontsize=SMALL_POINTS, linespacing=1.0, weight="bold" if (row, column) == best else "normal",
            )  # fmt: skip
    width = columns if ws[best[0]] == 0 else 1
    axes.add_patch(
        Rectangle(
            (best[1] + 0.03, best[0] + 0.03), width - 0.06, 0.94, fill=False, edgecolor="#d55e00", linewidth=2
        )
    )
    axes.set_xlim(0, columns)
    axes.set_ylim(0, rows)


def _shown(tau: float) -> str:
    return "∞" if tau == math.inf else f"{tau:g}"

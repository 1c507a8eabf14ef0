"""Figure 2: recall@1 over w and tau."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maskcon.paper.plans import Trial, with_seeds
from maskcon.paper.runs import Drawn, Setup, as_csv, shown_tau
from maskcon.report.published import appendix_rows
from maskcon.report.style import COLUMN_INCHES, INK, PALE, SMALL_POINTS, SMALLEST_POINTS, Plate
from maskcon.report.tables import MISSING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FloatArray = NDArray[np.floating[Any]]

W_AXIS = (0.0, 0.2, 0.5, 0.8, 1.0)  # section 4.1
TAU_AXIS = (0.0, 0.01, 0.05, 0.1, 0.5, math.inf)
TRIALS = tuple(Trial("maskcon", w, tau) for w in W_AXIS for tau in TAU_AXIS)

CELL_INCHES = 0.36
LEFT_INCHES, TOP_INCHES, BOTTOM_INCHES = 0.42, 0.26, 0.46
DARK_BELOW = 0.55  # of the range of colours: light letters up to here
COLOURS = "cividis"  # made for all kinds of colour vision, and even in grey


@dataclass(frozen=True)
class Grid:
    """Recall@1 in percent, [W, T], one row per w, one column per tau; NaN where unknown. spread: likewise."""

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
    """Draw the grids side by side, the best cell framed. w = 0 does not depend on tau: its row is one cell."""
    wide = (COLUMN_INCHES - LEFT_INCHES - 0.08) / len(taus)
    high = CELL_INCHES * len(ws)
    plate = Plate(width=COLUMN_INCHES * len(grids), height=TOP_INCHES + high + BOTTOM_INCHES, caption=caption)
    for number, grid in enumerate(grids):
        left = number * COLUMN_INCHES + LEFT_INCHES
        axes = plate.axes(left=left, top=TOP_INCHES, width=wide * len(taus), height=high)
        _cells(axes, grid, ws)
        plate.write(left, TOP_INCHES / 2, grid.title, size=SMALL_POINTS + 1, weight="bold")
        for column, tau in enumerate(taus):
            middle = left + wide * (column + 0.5)
            plate.write(middle, TOP_INCHES + high + 0.1, shown_tau(tau), ha="center")
            if tau == math.inf:
                plate.write(middle, TOP_INCHES + high + 0.22, "Grafit", size=SMALLEST_POINTS, ha="center")
        for row, w in enumerate(ws):
            plate.write(left - 0.06, TOP_INCHES + high - CELL_INCHES * (row + 0.5), f"{w:g}", ha="right")
        plate.write(
            left + wide * len(taus) / 2, TOP_INCHES + high + 0.3, "τ", size=SMALL_POINTS + 1.5, ha="center"
        )
        plate.write(left - 0.34, TOP_INCHES + high / 2, "w", size=SMALL_POINTS + 1.5, ha="center")
    return plate.figure


def _cells(axes: Axes, grid: Grid, ws: Sequence[float]) -> None:
    """Draw the coloured cells with their numbers; rows from below, the smallest w first."""
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


def draw(setup: Setup) -> Drawn:
    """Draw figure 2 from its runs."""
    shares = {
        (w, tau): [setup.open(one).recall[1] for one in with_seeds(Trial("maskcon", w, tau), setup.seeds)]
        for w in W_AXIS
        for tau in TAU_AXIS
    }
    means = np.array([[100 * statistics.fmean(shares[w, tau]) for tau in TAU_AXIS] for w in W_AXIS])
    spreads = None
    if setup.seeds > 1:
        spreads = np.array([[100 * statistics.stdev(shares[w, tau]) for tau in TAU_AXIS] for w in W_AXIS])
    paper = paper_grid(setup.ground.asked)
    grids = [Grid("Ours: recall@1, %", means, spreads)]
    text = "Recall@1 on the test images over w and τ; framed: the best, chosen on these same images."
    if setup.ground.warning is None:
        grids.append(Grid("Paper: recall@1, %", paper))
        text += " Paper: what its appendix B prints; a dash where it prints no number."
    caption = setup.caption(setup.open(Trial("maskcon", 1.0, 0.1)), text)
    numbers = []
    for (row, w), (column, tau) in product(enumerate(W_AXIS), enumerate(TAU_AXIS)):
        spread = "" if spreads is None else f"{spreads[row, column]:.2f}"
        printed = "" if math.isnan(paper[row, column]) else f"{paper[row, column]:.2f}"
        mean = f"{means[row, column]:.2f}"
        numbers.append([setup.ground.title, f"{w:g}", f"{tau:g}", mean, spread, setup.seeds, printed])
    header = ["data", "w", "tau", "recall_at_1", "sd", "runs", "paper_recall_at_1"]
    paths = setup.write(
        settings_heatmap(grids, W_AXIS, TAU_AXIS, caption=caption), "csv", as_csv(header, numbers)
    )
    row, column = grids[0].best
    best = f"w = {W_AXIS[row]:g}, tau = {TAU_AXIS[column]:g}: {means[row, column]:.2f} %"
    return paths, f"best on the test images (oracle): {best}"


def paper_grid(source: str) -> NDArray[np.float64]:
    """Return the paper's recall@1 in percent over `W_AXIS` and `TAU_AXIS`, NaN where appendix B has no row.

    >>> paper_grid("cifar100")[4].tolist()
    [nan, 61.41, 65.52, 62.52, 59.76, 58.65]
    """
    printed = {Trial(row.method, row.w, row.tau).canonical(): row.percent[0] for row in appendix_rows(source)}
    return np.array(
        [[printed.get(Trial("maskcon", w, tau).canonical(), math.nan) for tau in TAU_AXIS] for w in W_AXIS]
    )

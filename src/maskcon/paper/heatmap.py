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
from maskcon.paper.runs import Drawn, Setup, as_csv
from maskcon.report.published import appendix_rows
from maskcon.report.style import COLUMN_INCHES, INK, PALE, SMALL_POINTS, WRONG, figure_style, new_figure
from maskcon.report.tables import MISSING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FloatArray = NDArray[np.floating[Any]]

W_AXIS = (0.0, 0.2, 0.5, 0.8, 1.0)  # section 4.1
TAU_AXIS = (0.0, 0.01, 0.05, 0.1, 0.5, math.inf)
TRIALS = tuple(Trial("maskcon", w, tau) for w in W_AXIS for tau in TAU_AXIS)

CELL_INCHES = 0.36
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


@figure_style()
def settings_heatmap(
    grids: Sequence[Grid], ws: Sequence[float], taus: Sequence[float], *, caption: str = ""
) -> Figure:
    """Draw the grids side by side, the smallest w below, the best cell framed. w = 0 does not depend on tau."""
    from matplotlib.patches import Rectangle

    figure = new_figure(COLUMN_INCHES * len(grids), CELL_INCHES * len(ws) + 0.8, caption)
    for grid, axes in zip(grids, np.ravel(figure.subplots(1, len(grids))), strict=True):
        shown = axes.imshow(grid.percent, cmap=COLOURS, origin="lower", aspect="auto")
        axes.grid(False)
        axes.set(title=grid.title, xlabel="τ", ylabel="w")
        axes.set_xticks(range(len(taus)), ["∞\nGrafit" if tau == math.inf else f"{tau:g}" for tau in taus])
        axes.set_yticks(range(len(ws)), [f"{'SelfCon  ' if w == 0 else ''}{w:g}" for w in ws])
        axes.tick_params(labelsize=SMALL_POINTS)
        for (row, column), value in np.ndenumerate(grid.percent):
            known = not math.isnan(value)
            text = f"{value:.1f}" if known else MISSING
            if known and grid.spread is not None:
                text += f"\n± {float(grid.spread[row, column]):.1f}"
            light = known and shown.norm(value) < DARK_BELOW
            colour = PALE if not known else "white" if light else INK
            weight = "bold" if (row, column) == grid.best else "normal"
            axes.text(
                column, row, text, ha="center", va="center", color=colour, size=SMALL_POINTS, weight=weight
            )
        row, column = grid.best
        axes.add_patch(
            Rectangle((column - 0.47, row - 0.47), 0.94, 0.94, fill=False, edgecolor=WRONG, linewidth=2)
        )
    return figure


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

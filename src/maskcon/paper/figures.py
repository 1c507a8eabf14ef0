"""Figures 2 to 4 of the paper, drawn from finished runs; see `relations` for figure 1, `dataset_figures` for others."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import DataError
from maskcon.paper import dataset_figures, relations
from maskcon.paper.plans import TAU_AXIS, W_AXIS, Trial, with_seeds
from maskcon.paper.runs import Drawn, Setup
from maskcon.report.gallery import thumbnail, tile
from maskcon.report.maps import map_2d
from maskcon.report.published import appendix_rows
from maskcon.report.style import (
    COLOURS,
    COLUMN_INCHES,
    INK,
    MARKERS,
    PAGE_INCHES,
    PALE,
    SMALL_POINTS,
    SMALLEST_POINTS,
    WRONG,
    figure_style,
    hide_axes,
    new_figure,
    shorten,
)
from maskcon.report.tables import MISSING
from maskcon.retrieval.nearest import nearest_others, unit_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FloatArray = NDArray[np.floating[Any]]
IntArray = NDArray[np.integer[Any]]

CELL_INCHES = 0.36  # of the heatmap
DARK_BELOW = 0.55  # of the colour range: up to here letters are white
MAP_COLUMNS, LEGEND_COLUMNS, MOST_IN_LEGEND = 3, 4, 40
QUERIES, NEIGHBOURS, QUERY_SEED = 3, 10, 0
QUERY_PIXELS, NEIGHBOUR_PIXELS, GAP_PIXELS = 288, 144, 10  # at 300 dpi


def draw_heatmap(setup: Setup) -> Drawn:
    """Draw figure 2: recall@1 over w and tau."""
    cells = [[with_seeds(Trial("maskcon", w, tau), setup.seeds) for tau in TAU_AXIS] for w in W_AXIS]
    percent = np.array([[[100 * setup.open(one).recall[1] for one in cell] for cell in row] for row in cells])
    means, spreads = percent.mean(axis=2), None
    if setup.seeds > 1:
        spreads = percent.std(axis=2, ddof=1)
    paper = paper_grid(setup.ground.asked)
    grids = {"Ours: recall@1, %": means}
    text = "Recall@1 on the test images over w and τ; framed: the best, chosen on these same images."
    if setup.ground.warning is None:
        grids["Paper: recall@1, %"] = paper
        text += " Paper: what its appendix B prints; a dash where it prints no number."
    numbers = [
        {
            "w": w,
            "tau": f"{tau:g}",
            "recall_at_1": round(float(means[row, column]), 2),
            "sd": None if spreads is None else round(float(spreads[row, column]), 2),
            "paper_recall_at_1": None if math.isnan(paper[row, column]) else float(paper[row, column]),
        }
        for row, w in enumerate(W_AXIS)
        for column, tau in enumerate(TAU_AXIS)
    ]
    caption = setup.caption(setup.open(Trial("maskcon", 1.0, 0.1)), text)
    figure = settings_heatmap(grids, W_AXIS, TAU_AXIS, spreads, caption=caption)
    paths = setup.write(figure, {"data": setup.ground.title, "runs": setup.seeds, "cells": numbers})
    row, column = _best(means)
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


@figure_style()
def settings_heatmap(
    grids: Mapping[str, FloatArray],
    ws: Sequence[float],
    taus: Sequence[float],
    spreads: FloatArray | None = None,
    *,
    caption: str = "",
) -> Figure:
    """Draw grids [W, T] of percent by title, the smallest w below, the best cell framed; NaN is a dash.

    spreads: [W, T] of the first grid.
    """
    from matplotlib.patches import Rectangle

    figure = new_figure(COLUMN_INCHES * len(grids), CELL_INCHES * len(ws) + 0.8, caption)
    panels = np.ravel(figure.subplots(1, len(grids)))
    for (title, grid), axes in zip(grids.items(), panels, strict=True):
        # cividis: safe for colour-blind readers
        shown = axes.imshow(grid, cmap="cividis", origin="lower", aspect="auto")
        axes.grid(False)
        axes.set(title=title, xlabel="τ", ylabel="w")
        axes.set_xticks(range(len(taus)), ["∞\nGrafit" if tau == math.inf else f"{tau:g}" for tau in taus])
        axes.set_yticks(range(len(ws)), [f"{'SelfCon  ' if w == 0 else ''}{w:g}" for w in ws])
        axes.tick_params(labelsize=SMALL_POINTS)
        best_row, best_column = _best(grid)
        for (row, column), value in np.ndenumerate(grid):
            known = not math.isnan(value)
            text = f"{value:.1f}" if known else MISSING
            if known and spreads is not None and axes is panels[0]:
                text += f"\n± {float(spreads[row, column]):.1f}"
            colour = PALE if not known else "white" if shown.norm(value) < DARK_BELOW else INK
            weight = "bold" if (row, column) == (best_row, best_column) else "normal"
            look: dict[str, Any] = {"color": colour, "size": SMALL_POINTS, "weight": weight}
            axes.text(column, row, text, ha="center", va="center", **look)
        corner = (best_column - 0.47, best_row - 0.47)
        axes.add_patch(Rectangle(corner, 0.94, 0.94, fill=False, edgecolor=WRONG, linewidth=2))
    return figure


def _best(grid: FloatArray) -> tuple[int, int]:
    """Return row and column of the highest number, the first of ties."""
    row, column = np.unravel_index(int(np.nanargmax(grid)), grid.shape)
    return int(row), int(column)


def draw_tsne(setup: Setup) -> Drawn:
    """Draw figure 3: t-SNE maps of the same images under several methods."""
    runs = setup.open_methods()
    data, fine = setup.labelled_data(list(runs.values()))
    maps = {
        title: map_2d(run.encode_set(data.test, device=setup.machine.device).numpy())
        for title, run in runs.items()
    }
    recalls = {title: f"{100 * run.recall[1]:.1f}" for title, run in runs.items()}
    text = (
        f"t-SNE of the features of {len(fine):,} test images; one colour per fine class, one marker per coarse class. "
        f"R@1: recall@1 on them, %. {setup.settings()}"
    )
    classes = Classes(data.test.coarse, fine, data.coarse_names, data.fine_names or ())
    notes = {title: f"R@1 {recall}" for title, recall in recalls.items()}
    caption = setup.caption(next(iter(runs.values())), text)
    numbers = {
        "sample": data.test.index.tolist(),
        "coarse": classes.coarse.tolist(),
        "fine": classes.fine.tolist(),
        "points": {title: np.round(points.astype(float), 3).tolist() for title, points in maps.items()},
    }
    paths = setup.write(map_panels(maps, classes, notes=notes, caption=caption), numbers)
    return paths, f"recall@1: {', '.join(f'{title} {recall}' for title, recall in recalls.items())}"


@dataclass(frozen=True)
class Classes:
    """Labels [N] of the points of a map and the names of their classes."""

    coarse: IntArray
    fine: IntArray
    coarse_names: Sequence[str]
    fine_names: Sequence[str]

    def looks(self) -> dict[int, tuple[str, str]]:
        """Return colour and marker of each fine class: a colour each, a marker per coarse class.

        Colours repeat after eight classes, then with the next marker.

        >>> two = Classes(np.array([0, 1, 1]), np.array([5, 2, 3]), "ab", "abcdef")
        >>> {fine: marker for fine, (_, marker) in two.looks().items()}
        {5: 'o', 2: 's', 3: 's'}
        """
        pairs = sorted(set(zip(self.coarse.tolist(), self.fine.tolist(), strict=True)))
        kinds = sorted({coarse for coarse, _ in pairs})
        count = len(COLOURS)
        return {
            fine: (COLOURS[place % count], MARKERS[(kinds.index(coarse) + place // count) % len(MARKERS)])
            for place, (coarse, fine) in enumerate(pairs)
        }


@figure_style()
def map_panels(
    maps: Mapping[str, NDArray[Any]],
    classes: Classes,
    *,
    notes: Mapping[str, str] | None = None,
    caption: str = "",
) -> Figure:
    """Draw one panel per map [N, 2]; `notes` are placed right of a panel's title."""
    rows = -(-len(maps) // MAP_COLUMNS)
    looks = classes.looks()
    in_legend = len(looks) <= MOST_IN_LEGEND
    lines = -(-len(looks) // LEGEND_COLUMNS) if in_legend else 0
    figure = new_figure(PAGE_INCHES, rows * PAGE_INCHES / MAP_COLUMNS + 0.16 * lines + 0.2, caption)
    panels = [figure.add_subplot(rows, MAP_COLUMNS, place + 1) for place in range(len(maps))]
    coarse_of = dict(zip(classes.fine.tolist(), classes.coarse.tolist(), strict=True))
    for (name, points), axes in zip(maps.items(), panels, strict=True):
        axes.set_title(name, size=SMALL_POINTS + 1, weight="bold")
        axes.set_title((notes or {}).get(name, ""), size=SMALL_POINTS, loc="right")
        axes.set(xticks=[], yticks=[], aspect="equal")
        axes.set_adjustable("datalim")
        size = float(np.clip(9000 / max(1, len(points)), 1.6, 14))
        for fine, (colour, marker) in looks.items():
            x, y = points[classes.fine == fine].T
            label = shorten(f"{classes.fine_names[fine]} / {classes.coarse_names[coarse_of[fine]]}", 30)
            look: dict[str, Any] = {"c": colour, "marker": marker, "linewidths": 0, "alpha": 0.8}
            axes.scatter(x, y, s=size, rasterized=True, label=label, **look)
    if in_legend:
        place: dict[str, Any] = {"loc": "outside upper center", "ncols": LEGEND_COLUMNS}
        figure.legend(handles=panels[0].collections, fontsize=SMALL_POINTS, markerscale=2, **place)
    return figure


def draw_retrieval(setup: Setup) -> Drawn:
    """Draw figure 4: the ten neighbours that several methods find for the same queries."""
    runs = setup.open_methods()
    data, fine = setup.labelled_data(list(runs.values()))
    rows = queries_from(data.test.coarse, fine, QUERIES)
    if not len(rows):
        raise DataError(f"no two of the {len(fine)} test images share a fine class: there is nothing to find")
    found: dict[str, NDArray[np.int64]] = {}
    for title, run in runs.items():
        features = run.encode_set(data.test, device=setup.machine.device)
        found[title] = nearest_others(unit_rows(features.numpy()), rows, NEIGHBOURS)[0]
    right = {title: fine[near] == fine[rows][:, None] for title, near in found.items()}  # [Q, depth]
    queries, numbers = [], []
    for place, row in enumerate(rows.tolist()):
        name = f"{(data.fine_names or ())[fine[row]]} / {data.coarse_names[data.test.coarse[row]]}"
        shown = {
            title: ([data.test.image(other) for other in near[place].tolist()], right[title][place].tolist())
            for title, near in found.items()
        }
        queries.append(Query(data.test.image(row), name, shown))
        neighbours = {title: data.test.index[near[place]].tolist() for title, near in found.items()}
        record = {"sample": int(data.test.index[row]), "fine": int(fine[row]), "neighbours": neighbours}
        numbers.append(record | {"right": {title: int(hits[place].sum()) for title, hits in right.items()}})
    depth = min(NEIGHBOURS, len(fine) - 1)
    text = (
        f"The {depth} nearest of {len(fine):,} test images by each method. Tick: of the query's fine class. "
        f"Queries are drawn at random (seed {QUERY_SEED}), each from another coarse class; none was chosen by hand. "
        f"{setup.settings()}"
    )
    figure = retrieval_sheet(queries, caption=setup.caption(next(iter(runs.values())), text))
    totals = ", ".join(f"{title} {int(hits.sum())}" for title, hits in right.items())
    return setup.write(figure, {"queries": numbers}), f"right of {depth * len(rows)}: {totals}"


def queries_from(
    coarse: NDArray[np.int64], fine: NDArray[np.int64], count: int, seed: int = QUERY_SEED
) -> NDArray[np.int64]:
    """Draw query rows at random: each of another coarse class, none the only image of its fine class.

    Fewer than `count` if there are fewer such coarse classes.
    """
    sizes = np.bincount(fine)
    chosen: dict[int, int] = {}
    for row in np.random.default_rng(seed).permutation(len(fine)).tolist():
        if sizes[fine[row]] > 1:
            chosen.setdefault(int(coarse[row]), row)
    return np.array(list(chosen.values())[:count], dtype=np.int64)


@dataclass(frozen=True)
class Query:
    """A query [C, H, W], its label, and the images that each method found, nearest first, with which are right."""

    image: NDArray[np.uint8]
    name: str
    found: Mapping[str, tuple[Sequence[NDArray[np.uint8]], Sequence[bool]]]


@figure_style()
def retrieval_sheet(queries: Sequence[Query], *, caption: str = "") -> Figure:
    """Draw one block per query: the query on the left, then one row per method, in the first query's order.

    `tile` frames neighbours as right or wrong; the number of right ones is on the right.
    """
    methods = list(queries[0].found)
    figure = new_figure(PAGE_INCHES, 0.5 * len(methods) * len(queries) + 0.3, caption)
    grid = figure.add_gridspec(len(queries) * len(methods), 2, width_ratios=(1, 6))
    for number, query in enumerate(queries):
        first = number * len(methods)
        left = figure.add_subplot(grid[first : first + len(methods), 0])
        hide_axes(left)
        left.imshow(thumbnail(query.image, QUERY_PIXELS))
        left.set_xlabel(textwrap.fill(query.name, 21), size=SMALLEST_POINTS)
        for row, method in enumerate(methods, start=first):
            images, right = query.found[method]
            strip = [np.asarray(tile(*pair, NEIGHBOUR_PIXELS)) for pair in zip(images, right, strict=True)]
            spaced = [np.pad(one, ((0, 0), (0, GAP_PIXELS), (0, 0)), constant_values=255) for one in strip]
            axes = figure.add_subplot(grid[row, 1])
            hide_axes(axes)
            axes.imshow(np.concatenate(spaced, axis=1), interpolation="antialiased")
            axes.set_ylabel(method, rotation=0, ha="right", va="center", size=SMALL_POINTS, weight="bold")
            axes.set_title(f"{sum(right)} of {len(right)}", loc="right", x=1.07, y=0.3, size=SMALLEST_POINTS)
    return figure


DRAWN_BY: dict[str, Callable[[Setup], Drawn]] = {  # see `plans.FIGURES`
    "relations": relations.draw,
    "heatmap": draw_heatmap,
    "tsne": draw_tsne,
    "retrieval": draw_retrieval,
    "sop-statistics": dataset_figures.draw_sop,
    "coarse-cars": dataset_figures.draw_cars,
}

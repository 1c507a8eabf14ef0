"""Figure 4: the ten neighbours that several methods find for the same queries."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import DataError
from maskcon.paper.runs import Drawn, Setup
from maskcon.report.gallery import thumbnail, tile
from maskcon.report.style import (
    PAGE_INCHES,
    SMALL_POINTS,
    SMALLEST_POINTS,
    figure_style,
    hide_axes,
    new_figure,
)
from maskcon.retrieval.nearest import nearest_others, unit_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUERIES = 3
NEIGHBOURS = 10
QUERY_SEED = 0
QUERY_PIXELS, NEIGHBOUR_PIXELS, GAP_PIXELS = 288, 144, 10  # at 300 dpi


@dataclass(frozen=True)
class Query:
    """A query [C, H, W], its words, and what each method found: its images, nearest first, and which are right."""

    image: NDArray[np.uint8]
    name: str
    found: Mapping[str, tuple[Sequence[NDArray[np.uint8]], Sequence[bool]]]


@figure_style()
def retrieval_sheet(queries: Sequence[Query], *, caption: str = "") -> Figure:
    """Draw one block per query: the query on the left, then one row per method, in the first query's order.

    Neighbours are framed as right or wrong by `tile`; the number of correct ones is on the right.
    """
    methods = list(queries[0].found)
    figure = new_figure(PAGE_INCHES, 0.5 * len(methods) * len(queries) + 0.3, caption)
    grid = figure.add_gridspec(len(queries) * len(methods), 2, width_ratios=(1, 6))
    for number, query in enumerate(queries):
        first = number * len(methods)
        asked = figure.add_subplot(grid[first : first + len(methods), 0])
        hide_axes(asked)
        asked.imshow(thumbnail(query.image, QUERY_PIXELS))
        asked.set_xlabel(textwrap.fill(query.name, 21), size=SMALLEST_POINTS)
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


def draw(setup: Setup) -> Drawn:
    """Draw figure 4 from its runs."""
    runs = setup.open_methods()
    data, fine = setup.labelled_data(list(runs.values()))
    asked = queries_from(data.test.coarse, fine, QUERIES)
    if not len(asked):
        raise DataError(f"no two of the {len(fine)} test images share a fine class: there is nothing to find")
    found: dict[str, NDArray[np.int64]] = {}
    for title, run in runs.items():
        features = run.encode_set(data.test, device=setup.machine.device)
        found[title] = nearest_others(unit_rows(features.numpy()), asked, NEIGHBOURS)[0]
    depth = min(NEIGHBOURS, len(fine) - 1)
    right = {title: fine[near] == fine[asked][:, None] for title, near in found.items()}  # [Q, depth]
    names = data.fine_names or ()
    queries = [
        Query(
            data.test.image(row),
            f"{names[fine[row]]} / {data.coarse_names[data.test.coarse[row]]}",
            {
                title: (
                    [data.test.image(other) for other in near[place].tolist()],
                    right[title][place].tolist(),
                )
                for title, near in found.items()
            },
        )
        for place, row in enumerate(asked.tolist())
    ]
    text = (
        f"The {depth} nearest of {len(fine):,} test images by each method. Tick: of the query's fine class. "
        f"Queries are drawn at random (seed {QUERY_SEED}), each from another coarse class; none was chosen by hand. "
        f"{setup.settings()}"
    )
    figure = retrieval_sheet(queries, caption=setup.caption(next(iter(runs.values())), text))
    part = data.test
    numbers = {
        "queries": [
            {
                "sample": int(part.index[row]),
                "fine": int(fine[row]),
                "neighbours": {title: part.index[near[place]].tolist() for title, near in found.items()},
                "right": {title: int(hits[place].sum()) for title, hits in right.items()},
            }
            for place, row in enumerate(asked.tolist())
        ]
    }
    said = f"right of {depth * len(asked)}: " + ", ".join(
        f"{title} {int(hits.sum())}" for title, hits in right.items()
    )
    return setup.write(figure, "json", json.dumps(numbers, indent=1) + "\n"), said


def queries_from(
    coarse: NDArray[np.int64], fine: NDArray[np.int64], count: int, seed: int = QUERY_SEED
) -> NDArray[np.int64]:
    """Draw query rows at random: each of another coarse class, none the only image of its fine class.

    Fewer than `count` where there are fewer such coarse classes.
    """
    sizes = np.bincount(fine)
    chosen: dict[int, int] = {}
    for row in np.random.default_rng(seed).permutation(len(fine)).tolist():
        if sizes[fine[row]] > 1:
            chosen.setdefault(int(coarse[row]), row)
    return np.array(list(chosen.values())[:count], dtype=np.int64)

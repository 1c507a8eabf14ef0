"""Figure 4: the ten neighbours that several methods find for the same queries."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import DataError
from maskcon.paper.runs import Drawn, Setup
from maskcon.report.gallery import thumbnail, tile
from maskcon.report.style import PAGE_INCHES, SMALL_POINTS, SMALLEST_POINTS, Plate, wrapped
from maskcon.retrieval.nearest import nearest_others, unit_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from PIL import Image

QUERIES = 3
NEIGHBOURS = 10
QUERY_SEED = 0

METHOD_INCHES = 0.62
QUERY_INCHES = 1.05
GAP = 0.06  # between tiles, as a share of a tile
QUERY_PIXELS, NEIGHBOUR_PIXELS = 288, 144  # at 300 dpi
BLOCK_GAP_INCHES = 0.16


@dataclass(frozen=True)
class Query:
    """A query [C, H, W], its words, and what each method found: its images, nearest first, and which are right."""

    image: NDArray[np.uint8]
    name: str
    found: Mapping[str, tuple[Sequence[NDArray[np.uint8]], Sequence[bool]]]


def retrieval_sheet(queries: Sequence[Query], *, caption: str = "") -> Figure:
    """Draw one block per query: the query on the left, then one row per method, in the first query's order.

    Neighbours are framed as right or wrong by `tile`; the number of correct ones is on the right.
    """
    methods = list(queries[0].found)
    columns = len(queries[0].found[methods[0]][0])
    left = QUERY_INCHES + METHOD_INCHES + 0.12
    side = (PAGE_INCHES - left - 0.36) / columns
    block = side * len(methods)
    head = 0.18
    plate = Plate(
        width=PAGE_INCHES,
        height=head + len(queries) * (max(block, QUERY_INCHES + 0.3) + BLOCK_GAP_INCHES),
        caption=caption,
    )
    for rank in range(columns):
        plate.write(left + side * (rank + 0.5), head / 2, str(rank + 1), size=SMALLEST_POINTS, ha="center")
    plate.write(PAGE_INCHES - 0.06, head / 2, "right", size=SMALLEST_POINTS, ha="right")
    for number, query in enumerate(queries):
        top = head + number * (max(block, QUERY_INCHES + 0.3) + BLOCK_GAP_INCHES)
        shown = plate.axes(left=0.06, top=top + 0.03, width=QUERY_INCHES - 0.12, height=QUERY_INCHES - 0.12)
        _show(shown, thumbnail(query.image, QUERY_PIXELS), 0)
        shown.set_xlim(0, 1)
        shown.set_ylim(1, 0)
        for line, words in enumerate(wrapped(query.name, 21, 3)):
            plate.write(0.06, top + QUERY_INCHES + 0.02 + 0.12 * line, words, size=SMALLEST_POINTS)
        for row, method in enumerate(methods):
            images, right = query.found[method]
            middle = top + side * (row + 0.5)
            plate.write(
                QUERY_INCHES + METHOD_INCHES, middle, method, size=SMALL_POINTS, ha="right", weight="bold"
            )
            axes = plate.axes(left=left, top=top + side * row, width=side * columns, height=side)
            axes.set_gid(f"found-{number}-{method}")
            for place, (image, is_right) in enumerate(zip(images, right, strict=True)):
                _show(axes, tile(image, bool(is_right), NEIGHBOUR_PIXELS), place)
            axes.set_xlim(0, columns)
            axes.set_ylim(1, 0)
            plate.write(PAGE_INCHES - 0.06, middle, f"{sum(map(bool, right))}", ha="right")
    return plate.figure


def _show(axes: Axes, drawn: Image.Image, place: int) -> None:
    """Draw a square image as number `place` of a row of squares of side 1."""
    edge = GAP / 2
    extent = (place + edge, place + 1 - edge, 1 - edge, edge)
    axes.imshow(np.asarray(drawn), extent=extent, aspect="auto", interpolation="antialiased")


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

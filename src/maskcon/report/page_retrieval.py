"""Rows of retrieved neighbours as part of a page: real pictures with words, which wrap on a phone."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskcon.report.gallery import Images, fitted
from maskcon.report.page_parts import picture_uri

TILE_PIXELS = 96
EXACT_SIDE = 32  # such small images are kept without loss, and enlarged by the browser


@dataclass(frozen=True)
class PageRetrieval:
    """Queries [Q] with their neighbours [Q, k], all rows of `images`, best first.

    title and note say whose neighbours they are; names and ids tell of every image its class and what it is called.
    marks [Q, k]: 1 for the query's class (a tick), -1 for another (a cross), 0 for none.
    """

    title: str
    note: str
    images: Images
    queries: NDArray[Any]
    neighbours: NDArray[Any]
    cosines: NDArray[Any]
    names: Sequence[str]
    ids: Sequence[str]
    marks: NDArray[Any]


def retrieval_html(grid: PageRetrieval) -> str:
    """A heading, a note, and a list a query."""
    shown = {*np.asarray(grid.queries).tolist(), *np.asarray(grid.neighbours).reshape(-1).tolist()}
    small = max(max(grid.images[row].shape[1:]) for row in shown) <= EXACT_SIDE
    rows = "\n".join(_row_html(grid, number, small) for number in range(len(grid.queries)))
    crisp = " crisp" if small else ""
    return (
        f"<h3>{html.escape(grid.title)}</h3>\n<p>{html.escape(grid.note)}</p>\n"
        f'<div class="grids{crisp}">\n{rows}\n</div>'
    )


def _row_html(grid: PageRetrieval, number: int, small: bool) -> str:
    query = int(grid.queries[number])
    tiles = [_tile_html(grid, query, "query", "query", 0, small)]
    for rank, found in enumerate(np.asarray(grid.neighbours[number]).tolist(), start=1):
        cosine = f"{float(grid.cosines[number][rank - 1]):.2f}"
        mark = int(grid.marks[number][rank - 1])
        tiles.append(_tile_html(grid, int(found), f"number {rank}, cosine {cosine}", cosine, mark, small))
    label = html.escape(f"Nearest to {grid.ids[query]}, {grid.names[query]}")
    return f'<ol class="tiles" aria-label="{label}">{"".join(tiles)}</ol>'


def _tile_html(grid: PageRetrieval, row: int, spoken: str, shown: str, mark: int, small: bool) -> str:
    picture = fitted(grid.images[row], EXACT_SIDE if small else TILE_PIXELS)
    name, called = str(grid.names[row]), str(grid.ids[row])
    kind, sign, said = {
        1: (" same", "✓", ", same class"),
        -1: (" other", "✗", ", another class"),
        0: ("", "", ""),
    }[mark]
    badge = f'<b aria-hidden="true">{sign}</b>' if sign else ""
    alt = html.escape(f"{spoken}: {name}{said}")
    return (
        f'<li class="tile{kind}" title="{html.escape(f"{name}: {called}")}"><span>'
        f'<img src="{picture_uri(picture, exact=small)}" alt="{alt}" width="72" height="72">{badge}</span>'
        f'<small aria-hidden="true">{html.escape(name)}</small><small aria-hidden="true">{shown}</small></li>'
    )

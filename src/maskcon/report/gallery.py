"""Image grids: rows of retrieved neighbours as one image or as HTML, and sheets of thumbnails."""

from __future__ import annotations

import base64
import html
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maskcon.report.style import RIGHT, WRONG, as_pixels

if TYPE_CHECKING:
    from PIL import Image, ImageDraw


Images = NDArray[np.uint8] | Sequence[NDArray[np.uint8]]  # [N, C, H, W], or [C, H, W] of any size each

TILE_PIXELS = 72
FRAME_PIXELS = 4
BADGE_PIXELS = 22
GAP_PIXELS = 6
HEAD_PIXELS = 22
HTML_TILE_PIXELS = 96
EXACT_SIDE = 32  # images this small are kept without loss, and enlarged by the browser
NEUTRAL = "#808080"  # seen on white and on black


def retrieval_grid(
    images: Images,
    queries: Sequence[int] | NDArray[Any],
    neighbours: Sequence[Sequence[int]] | NDArray[Any],
    marks: NDArray[Any] | None,
) -> Image.Image:
    """Draw one row per query: the query on the left, its neighbours, nearest first, on the right.

    images: N uint8 images; queries [Q] and neighbours [Q, k] are rows of `images`; marks [Q, k] are 1 for a
    neighbour of the query's class and -1 for one of another, see `tile`; 0, or None for all, where the truth is
    unknown, draws a plain frame. The background is transparent.
    """
    from PIL import Image, ImageDraw

    asked = np.asarray(queries, dtype=np.int64).reshape(-1)
    found = np.asarray(neighbours, dtype=np.int64).reshape(len(asked), -1)
    step = TILE_PIXELS + 2 * FRAME_PIXELS + GAP_PIXELS
    columns = 1 + found.shape[1]
    width = columns * step + GAP_PIXELS  # the query stands a gap apart from the rest
    drawn = Image.new("RGBA", (max(1, width), HEAD_PIXELS + max(1, len(asked)) * step), (0, 0, 0, 0))
    _head(ImageDraw.Draw(drawn), columns, step)
    for row, query in enumerate(asked.tolist()):
        top = HEAD_PIXELS + row * step
        drawn.paste(tile(images[query]), (0, top))
        for rank, neighbour in enumerate(found[row].tolist()):
            left = (1 + rank) * step + GAP_PIXELS
            mark = 0 if marks is None else int(marks[row][rank])
            drawn.paste(tile(images[neighbour], None if mark == 0 else mark > 0), (left, top))
    return drawn


def sprite_sheet(images: Images, tile: int = 48) -> tuple[Image.Image, int]:
    """Draw all images as square thumbnails on one sheet; returns it and its number of columns."""
    from PIL import Image

    columns = max(1, math.ceil(math.sqrt(len(images))))
    rows = max(1, -(-len(images) // columns))
    sheet = Image.new("RGB", (columns * tile, rows * tile), (0, 0, 0))
    for index, image in enumerate(images):
        sheet.paste(thumbnail(image, tile), ((index % columns) * tile, (index // columns) * tile))
    return sheet, columns


def _head(draw: ImageDraw.ImageDraw, columns: int, step: int) -> None:
    from PIL import ImageFont

    font = ImageFont.load_default(size=14)
    for column in range(columns):
        words = "query" if column == 0 else str(column)
        left = column * step + (GAP_PIXELS if column else 0) + TILE_PIXELS / 2 + FRAME_PIXELS
        draw.text((left, HEAD_PIXELS / 2), words, fill=NEUTRAL, font=font, anchor="mm")


def tile(image: NDArray[np.uint8], right: bool | None = None, side: int = TILE_PIXELS) -> Image.Image:
    """Frame an image [C, H, W], scaled to `side`: a tick on green if right, a cross on orange if wrong."""
    from PIL import Image, ImageDraw

    unit = side / TILE_PIXELS
    frame = round(FRAME_PIXELS * unit)
    whole = side + 2 * frame
    colour = NEUTRAL if right is None else RIGHT if right else WRONG
    framed = Image.new("RGB", (whole, whole), colour)
    framed.paste(thumbnail(image, side), (frame, frame))
    if right is None:
        return framed
    start = whole - round(BADGE_PIXELS * unit)
    draw = ImageDraw.Draw(framed)
    draw.rectangle((start, start, whole, whole), fill=colour)
    strokes = [(5, 11, 9, 16, 17, 6)] if right else [(6, 6, 16, 16), (16, 6, 6, 16)]
    for stroke in strokes:
        draw.line(
            [start + unit * place for place in stroke], fill="white", width=round(3 * unit), joint="curve"
        )
    return framed


def thumbnail(image: NDArray[np.uint8], side: int, ground: str = "black") -> Image.Image:
    """Centre an image [C, H, W] in a square."""
    from PIL import Image

    scaled = fitted(image, side)
    square = Image.new("RGB", (side, side), ground)
    square.paste(scaled, ((side - scaled.width) // 2, (side - scaled.height) // 2))
    return square


def fitted(image: NDArray[np.uint8], side: int) -> Image.Image:
    """Scale an image [C, H, W] to fit a square; small ones by whole multiples, to stay crisp."""
    from PIL import Image

    drawn = Image.fromarray(as_pixels(image))
    size = fitted_size(drawn.width, drawn.height, side)
    if size == drawn.size:
        return drawn
    enlarged = size[0] >= 2 * drawn.width
    return drawn.resize(size, Image.Resampling.NEAREST if enlarged else Image.Resampling.LANCZOS)


def fitted_size(width: int, height: int, side: int) -> tuple[int, int]:
    """Return width and height of an image scaled to fit a square.

    >>> fitted_size(10, 5, 32), fitted_size(64, 32, 32)
    ((30, 15), (32, 16))
    """
    largest = max(width, height)
    if largest * 2 <= side:
        factor = side // largest
        return width * factor, height * factor
    return max(1, round(width * side / largest)), max(1, round(height * side / largest))


@dataclass(frozen=True)
class PageRetrieval:
    """Queries [Q] with their neighbours [Q, k], all rows of `images`, best first.

    title and note describe the neighbours; names and ids are the class and the name of every image.
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
    """Render a heading, a note, and one list per query."""
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


def _tile_html(grid: PageRetrieval, row: int, description: str, shown: str, mark: int, small: bool) -> str:
    drawn = fitted(grid.images[row], EXACT_SIDE if small else HTML_TILE_PIXELS)
    name, called = str(grid.names[row]), str(grid.ids[row])
    kind, sign, said = {
        1: (" same", "✓", ", same class"),
        -1: (" other", "✗", ", another class"),
        0: ("", "", ""),
    }[mark]
    badge = f'<b aria-hidden="true">{sign}</b>' if sign else ""
    alt = html.escape(f"{description}: {name}{said}")
    return (
        f'<li class="tile{kind}" title="{html.escape(f"{name}: {called}")}"><span>'
        f'<img src="{image_uri(drawn, exact=small)}" alt="{alt}" width="72" height="72">{badge}</span>'
        f'<small aria-hidden="true">{html.escape(name)}</small><small aria-hidden="true">{shown}</small></li>'
    )


def image_uri(image: Image.Image, *, exact: bool, quality: int = 82) -> str:
    """Encode an image as a data URI: PNG where every pixel counts, else JPEG."""
    stream = io.BytesIO()
    if exact:
        image.save(stream, format="PNG", optimize=True)
    else:
        # Colour at half size on blocks of 16 pixels: tiles of a multiple of 16 do not run into each other.
        image.save(stream, format="JPEG", quality=quality, optimize=True, subsampling="4:2:0")
    kind = "png" if exact else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(stream.getvalue()).decode()}"

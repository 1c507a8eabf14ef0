"""Image grids: rows of retrieved neighbours as one image or as HTML, and sheets of thumbnails."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
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
NEUTRAL = "#808080"  # visible on white and on black


def retrieval_grid(
    images: Images,
    queries: Sequence[int] | NDArray[Any],
    neighbours: Sequence[Sequence[int]] | NDArray[Any],
    marks: NDArray[Any] | None,
) -> Image.Image:
    """Draw one row per query: the query on the left, its neighbours, nearest first, on the right.

    images: N uint8 images; queries [Q] and neighbours [Q, k] are rows of `images`; marks [Q, k] are 1 for a
    neighbour of the query's class and -1 for one of another, see `tile`; 0, or None for all, draws a plain frame, for
    unknown classes. The background is transparent.
    """
    from PIL import Image, ImageDraw

    rows = np.asarray(queries, dtype=np.int64).reshape(-1)
    found = np.asarray(neighbours, dtype=np.int64).reshape(len(rows), -1)
    step = TILE_PIXELS + 2 * FRAME_PIXELS + GAP_PIXELS
    columns = 1 + found.shape[1]
    width = columns * step + GAP_PIXELS  # a gap between the query and the rest
    drawn = Image.new("RGBA", (max(1, width), HEAD_PIXELS + max(1, len(rows)) * step), (0, 0, 0, 0))
    _head(ImageDraw.Draw(drawn), columns, step)
    for row, query in enumerate(rows.tolist()):
        top = HEAD_PIXELS + row * step
        drawn.paste(tile(images[query]), (0, top))
        for rank, neighbour in enumerate(found[row].tolist()):
            left = (1 + rank) * step + GAP_PIXELS
            mark = 0 if marks is None else int(marks[row][rank])
            drawn.paste(tile(images[neighbour], None if mark == 0 else mark > 0), (left, top))
    return drawn


def sprite_sheet(images: Images, tile: int = 48) -> tuple[Image.Image, int]:
    """Draw all images as square thumbnails on one sheet; return it and its number of columns."""
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
    """Scale an image [C, H, W] to fit a square; enlarge by whole factors, to stay crisp."""
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


def as_png(image: Image.Image) -> bytes:
    """Encode an image as PNG, as small as possible."""
    stream = io.BytesIO()
    image.save(stream, format="PNG", optimize=True)
    return stream.getvalue()


def image_uri(image: Image.Image, *, exact: bool, quality: int = 82) -> str:
    """Encode an image as a data URI: PNG where every pixel counts, else JPEG."""
    content = as_png(image) if exact else b""
    if not exact:
        stream = io.BytesIO()
        # 4:2:0 works on blocks of 16 pixels: tiles of a multiple of 16 do not bleed into each other.
        image.save(stream, format="JPEG", quality=quality, optimize=True, subsampling="4:2:0")
        content = stream.getvalue()
    return f"data:image/{'png' if exact else 'jpeg'};base64,{base64.b64encode(content).decode()}"

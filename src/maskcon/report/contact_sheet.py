"""Contact sheets of kinds: one PNG per coarse class, one row per kind."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from maskcon._utils.files import make_folder, write_atomically
from maskcon._utils.text import counted
from maskcon.discovery.kinds import Kinds
from maskcon.discovery.summary import BORDERLINE_SHOWN, TYPICAL_SHOWN, ClassSummary, KindSummary, summarise
from maskcon.report.gallery import thumbnail

SHEETS = "sheets"  # in the folder of the kinds
TILE, GAP, TEXT_WIDTH, HEAD = 96, 4, 210, 44  # pixels
MOST_ROWS = 60
GROUND, INK, FAINT = "white", "#202020", "#707070"


def draw_sheets(
    folder: Path,
    kinds: Kinds,
    read: Callable[[Iterable[str]], Mapping[str, NDArray[np.uint8]]],
    before: Mapping[str, tuple[str, str]],
) -> dict[str, tuple[str, str]]:
    """Draw the contact sheets that have changed; return file and checksum of each class.

    Args:
        read: decodes images by path, see `maskcon.discovery.session.Session.read_pixels`.
        before: the return value for the existing sheets.
    """
    make_folder(folder / SHEETS)
    sheets: dict[str, tuple[str, str]] = {}
    for summary in summarise(kinds):
        taken = [Path(name).name for name, _ in sheets.values()]
        name, digest = f"{SHEETS}/{sheet_name(summary.coarse, taken)}", sheet_digest(summary)
        if before.get(summary.coarse) != (name, digest) or not (folder / name).is_file():
            shown = {path for kind in summary.kinds for path in (*kind.typical, *kind.borderline)}
            write_atomically(folder / name, sheet_png(summary, read(sorted(shown))))
        sheets[summary.coarse] = (name, digest)
    for name in {name for name, _ in before.values()} - {name for name, _ in sheets.values()}:
        (folder / name).unlink(missing_ok=True)
    return sheets


def sheet_png(summary: ClassSummary, images: Mapping[str, NDArray[np.uint8]]) -> bytes:
    """Draw the sheet of a class: per kind its name and size, typical images, then borderline ones.

    Args:
        images: path -> image [C, h, w]; the place of a missing one stays empty.
    """
    kinds = summary.kinds[:MOST_ROWS]
    step = TILE + GAP
    width = TEXT_WIDTH + (TYPICAL_SHOWN + BORDERLINE_SHOWN) * step + 2 * GAP
    sheet = Image.new("RGB", (width, HEAD + len(kinds) * step), GROUND)
    draw = ImageDraw.Draw(sheet)
    number = f"{counted(len(summary.kinds), 'kind')}, {counted(summary.images, 'image')}"
    write_line(draw, (GAP, 4), f"{summary.coarse}: {number}", 15, INK, width)
    write_line(draw, (TEXT_WIDTH, 26), "typical", 12, FAINT, width)
    if any(kind.borderline for kind in kinds):
        write_line(draw, (TEXT_WIDTH + TYPICAL_SHOWN * step + 2 * GAP, 26), "borderline", 12, FAINT, width)
    for row, kind in enumerate(kinds):
        _draw_kind(sheet, draw, HEAD + row * step, kind, images)
    content = io.BytesIO()
    sheet.save(content, format="PNG")
    return content.getvalue()


def sheet_digest(summary: ClassSummary) -> str:
    """Return a checksum of what the sheet of a class shows."""
    shown = [
        (kind.name, kind.size, kind.confused_with, kind.typical, kind.borderline) for kind in summary.kinds
    ]
    return hashlib.sha256(
        repr((summary.coarse, summary.images, shown)).encode("utf-8", "replace")
    ).hexdigest()


def sheet_name(coarse: str, taken: Collection[str]) -> str:
    """Return a file name for the sheet of a class, unique also if case is ignored.

    >>> sheet_name("red apple/pear", []), sheet_name("Cat", ["cat.png"])
    ('red_apple_pear.png', 'Cat-2.png')
    """
    stem = re.sub(r"[^\w-]+", "_", coarse)[:60].strip("_") or "class"
    used = {Path(name).stem.lower() for name in taken}
    number, name = 1, stem
    while name.lower() in used:
        number += 1
        name = f"{stem}-{number}"
    return f"{name}.png"


def _draw_kind(
    sheet: Image.Image,
    draw: ImageDraw.ImageDraw,
    top: int,
    kind: KindSummary,
    images: Mapping[str, NDArray[np.uint8]],
) -> None:
    room = TEXT_WIDTH - 2 * GAP
    write_line(draw, (GAP, top + 16), kind.name, 14, INK, room)
    write_line(draw, (GAP, top + 38), counted(kind.size, "image"), 12, FAINT, room)
    if kind.confused_with is not None:
        write_line(draw, (GAP, top + 56), f"nearest: {kind.confused_with}", 12, FAINT, room)
    for start, paths in ((0, kind.typical), (TYPICAL_SHOWN, kind.borderline)):
        for column, path in enumerate(paths, start=start):
            left = TEXT_WIDTH + column * (TILE + GAP) + (2 * GAP if start else 0)
            if path in images:
                sheet.paste(thumbnail(images[path], TILE, GROUND), (left, top))


def write_line(
    draw: ImageDraw.ImageDraw, place: tuple[int, int], text: str, size: int, colour: str, room: int
) -> None:
    """Write one line, shortened to the available width."""
    font = _font(size)
    text = text.encode("utf-8", "replace").decode()
    if draw.textlength(text, font=font) > room:
        while text and draw.textlength(f"{text}...", font=font) > room:
            text = text[:-1]
        text = f"{text}..."
    draw.text(place, text, fill=colour, font=font)


def _font(size: int) -> ImageFont.FreeTypeFont:
    import matplotlib

    # covers more scripts than Pillow's own font
    return ImageFont.truetype(str(Path(matplotlib.get_data_path(), "fonts/ttf/DejaVuSans.ttf")), size)

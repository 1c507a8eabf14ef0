"""One self-contained HTML file: no network, no other file, nothing of the data taken for markup.

write_page("report.html", title="First run", summary=["Recall@1 rose."], tables=[table])
"""

from __future__ import annotations

import base64
import hashlib
import html
import importlib.resources
import json
import os
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maskcon.errors import UsageError
from maskcon.report.figures import png_bytes, svg_text
from maskcon.report.formats import Table
from maskcon.report.gallery import Images, sprite_sheet
from maskcon.report.palette import INK, class_look

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL import Image

THUMBNAIL_PIXELS = 32
ROWS_SHOWN_OPEN = 12


@dataclass(frozen=True)
class PageFigure:
    """A figure or a picture, what it shows in words for those who cannot see it, and a caption."""

    figure: Figure | Image.Image
    alt: str
    caption: str = ""


@dataclass(frozen=True)
class PageMap:
    """Layouts by name, each [N, 2], of the same N images; labels by name with their class names.

    The first labelling colours the map at first: `{"Fine label": (fine, fine_names), "Coarse label": ...}`.
    """

    layouts: Mapping[str, NDArray[Any]]
    images: Images
    labels: Mapping[str, tuple[Sequence[int] | NDArray[Any], Sequence[str]]]
    ids: Sequence[Any] = field(default=())  # what an image is called; its row if not given


def write_page(
    path: str | os.PathLike[str],
    *,
    title: str,
    summary: Sequence[str] = (),
    tables: Sequence[Table] = (),
    figures: Sequence[PageFigure] = (),
    map_data: PageMap | None = None,
    galleries: Sequence[PageFigure] = (),
    settings: Sequence[Table] = (),
    how_to_rerun: str = "",
    footer: str = "",
) -> Path:
    """Write the page, atomically; sections without content are left out. Returns its path.

    Sections in order: results (tables), curves (figures), map, retrieval (galleries), settings, how to rerun.
    """
    sections = [
        ("results", "Results", "\n".join(table.html() for table in tables)),
        ("curves", "Curves", "\n".join(_figure_html(item, index) for index, item in enumerate(figures))),
        ("map", "Map of the images", _map_html(map_data) if _has_points(map_data) else ""),
        ("retrieval", "Retrieved neighbours", "\n".join(_figure_html(item, 0) for item in galleries)),
        ("settings", "Settings", "\n".join(map(_settings_html, settings))),
        ("rerun", "How to run it again", _code_html(how_to_rerun) if how_to_rerun else ""),
    ]  # fmt: skip
    present = [section for section in sections if section[2]]
    script = _package_text("page.js").rstrip("\n")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = string.Template(_package_text("page.html")).substitute(
        title=html.escape(title),
        style=_package_text("page.css").rstrip("\n"),
        script=script,
        # Only this very script may run: should a name ever slip through unescaped, it stays text.
        script_hash=f"sha256-{digest}",
        summary="\n".join(f"<p>{html.escape(sentence)}</p>" for sentence in summary),
        contents="".join(f'<a href="#{key}">{heading}</a>' for key, heading, _ in present),
        sections="\n".join(_section_html(*section) for section in present),
        footer=html.escape(footer),
        data=_map_json(map_data) if map_data is not None and _has_points(map_data) else "",
    )
    return _write(Path(path), page)


def _write(path: Path, page: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    # A file name that is not valid UTF-8 shows a question mark and does not stop the page.
    temporary.write_bytes(page.encode("utf-8", errors="replace"))
    temporary.replace(path)
    return path


def _package_text(name: str) -> str:
    return importlib.resources.files("maskcon.report").joinpath(name).read_text(encoding="utf-8")


def _code_html(text: str) -> str:
    return f'<pre tabindex="0"><code>{html.escape(text)}</code></pre>'


def _section_html(key: str, heading: str, body: str) -> str:
    opening = f'<section id="{key}" aria-labelledby="{key}-heading">'
    return f'{opening}\n<h2 id="{key}-heading">{heading}</h2>\n{body}\n</section>'


def _settings_html(table: Table) -> str:
    """Long tables stay closed until asked for."""
    if len(table.rows) <= ROWS_SHOWN_OPEN:
        return f'<div class="prose">{table.html()}</div>'
    title = html.escape(table.title or "All settings")
    body = replace(table, title="").html()
    return f'<details class="prose"><summary>{title} ({len(table.rows)})</summary>{body}</details>'


def _figure_html(item: PageFigure, number: int) -> str:
    from PIL import Image

    caption = f"<figcaption>{html.escape(item.caption)}</figcaption>" if item.caption else ""
    if isinstance(item.figure, Image.Image):
        picture = item.figure
        body = (
            f'<div class="scroll" tabindex="0" role="group" aria-label="{html.escape(item.caption or item.alt)}">'
            f'<img src="{_data_uri(png_bytes(picture))}" width="{picture.width}" height="{picture.height}" '
            f'alt="{html.escape(item.alt)}"></div>'
        )
        # The caption first: it says which encoder the rows below belong to.
        return f'<figure class="picture">{caption}{body}</figure>'
    return f'<figure class="plot">{_inline_svg(svg_text(item.figure), item.alt, f"f{number}-")}{caption}</figure>'


def _inline_svg(text: str, alt: str, prefix: str) -> str:
    """matplotlib's SVG as a part of a page: own identifiers, the page's text colour, an accessible name."""
    body = text[text.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r"<style[^>]*>.*?</style>", "", body, flags=re.DOTALL)  # would apply to the whole page
    body = re.sub(r'\bid="', f'id="{prefix}', body)
    body = re.sub(r'href="#', f'href="#{prefix}', body)
    body = body.replace("url(#", f"url(#{prefix}")
    body = re.sub(re.escape(INK), "currentColor", body, flags=re.IGNORECASE)
    opening, rest = body.split(">", 1)
    opening = re.sub(r'\s(?:width|height|version)="[^"]*"', "", opening)
    return f'{opening} role="img" aria-label="{html.escape(alt)}">{rest.strip()}'


def _data_uri(content: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(content).decode()


def _has_points(map_data: PageMap | None) -> bool:
    return (
        map_data is not None and bool(map_data.layouts) and bool(map_data.labels) and len(map_data.images) > 0
    )


def _map_html(map_data: PageMap | None) -> str:
    if map_data is None:
        return ""
    layouts = "".join(f"<option>{html.escape(name)}</option>" for name in map_data.layouts)
    colourings = "".join(f"<option>{html.escape(name)}</option>" for name in map_data.labels)
    return string.Template(_package_text("map.html")).substitute(
        layouts=layouts, colourings=colourings, count=len(map_data.images)
    )


def _map_json(map_data: PageMap) -> str:
    count = len(map_data.images)
    sheet, columns = sprite_sheet(map_data.images, THUMBNAIL_PIXELS)
    ids = [str(name) for name in map_data.ids] or [str(row) for row in range(count)]
    layouts = []
    for name, points in map_data.layouts.items():
        array = np.asarray(points, dtype=np.float64)
        if array.shape != (count, 2) or not np.isfinite(array).all():
            raise UsageError(
                f"map {name!r} has shape {list(array.shape)} or gaps; {count} images need [{count}, 2]"
            )
        layouts.append({"name": name, "points": np.round(_unit_square(array), 4).tolist()})
    colourings = []
    for title, (given, names) in map_data.labels.items():
        labels = [int(label) for label in given]
        if len(labels) != count or (labels and not 0 <= min(labels) <= max(labels) < len(names)):
            raise UsageError(f"{title!r}: {len(labels)} labels, {len(names)} class names for {count} images")
        looks = [class_look(position) for position in range(len(names))]
        colourings.append(
            {"title": title, "labels": labels, "names": [str(n) for n in names], "looks": looks}
        )
    content = {
        "layouts": layouts,
        "colourings": colourings,
        "ids": ids,
        "sheet": _data_uri(png_bytes(sheet)),
        "columns": columns,
        "tile": THUMBNAIL_PIXELS,
    }
    # Inside a script element only `<` could end it or open a comment.
    text = json.dumps(content, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="map-data">{text}</script>'


def _unit_square(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scaled to fit [0, 1], the same on both axes: few digits then suffice for any map."""
    low = points.min(axis=0)
    span = float((points.max(axis=0) - low).max())
    scaled: NDArray[np.float64] = (points - low) / (span if span > 0 else 1.0)
    return scaled

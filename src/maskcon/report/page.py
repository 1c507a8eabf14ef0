"""One self-contained HTML file: no network, no other file, nothing of the data taken for markup.

write_page("report.html", Page(title="First run", summary=["Recall@1 rose."], tables=[table]))
"""

from __future__ import annotations

import base64
import hashlib
import html
import os
import re
import string
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from maskcon.report.figures import svg_text
from maskcon.report.formats import Table
from maskcon.report.gallery import PageRetrieval, retrieval_html
from maskcon.report.maps import PageMap, map_html, map_json, package_text
from maskcon.report.style import INK

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Page", "PageFigure", "PageMap", "PageRetrieval", "write_page"]

ROWS_SHOWN_OPEN = 12


@dataclass(frozen=True)
class PageFigure:
    """A figure with its alternative text and a caption."""

    figure: Figure
    alt: str
    caption: str = ""


@dataclass(frozen=True)
class Page:
    """Content of a page, in its order; parts without content are left out.

    about: names and texts on data and training
    result_notes: shown above the result tables
    statistics, similarities: tables and figures about the embedding
    rerun: texts with their commands
    """

    title: str
    summary: Sequence[str] = ()
    about: Sequence[tuple[str, str]] = ()
    result_notes: Sequence[str] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[PageFigure] = ()
    map_data: PageMap | None = None
    retrievals: Sequence[PageRetrieval] = ()
    statistics: Sequence[Table] = ()
    similarities: Sequence[PageFigure] = ()
    settings: Sequence[Table] = ()
    rerun: Sequence[tuple[str, str]] = field(default=())
    footer: str = ""

    @property
    def drawn_map(self) -> PageMap | None:
        """Return the map, unless it has no points."""
        return self.map_data if self.map_data is not None and self.map_data.has_points else None


def write_page(path: str | os.PathLike[str], page: Page) -> Path:
    """Write the page atomically; returns its path."""
    sections = [section for section in _sections(page) if section[2]]
    script = "\n".join(package_text(name).rstrip("\n") for name in ("page.js", "page_map.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    text = string.Template(package_text("page.html")).substitute(
        title=html.escape(page.title),
        style=package_text("page.css").rstrip("\n"),
        script=script,
        # Only this script may run, even if a name were left unescaped.
        script_hash=f"sha256-{digest}",
        summary=_paragraphs(page.summary),
        contents="".join(f'<a href="#{key}">{heading}</a>' for key, heading, _ in sections),
        sections="\n".join(_section_html(*section) for section in sections),
        footer=html.escape(page.footer),
        data="" if page.drawn_map is None else map_json(page.drawn_map),
    )
    return _write(Path(path), text)


def _sections(page: Page) -> list[tuple[str, str, str]]:
    """Return key, heading and body of each section."""
    results = (
        [_paragraphs(page.result_notes), *(table.html() for table in page.tables)] if page.tables else []
    )
    curves = [_figure_html(item, f"c{number}-") for number, item in enumerate(page.figures)]
    statistics = [
        *(f'<div class="measures">{table.html()}</div>' for table in page.statistics[:1]),
        *(_figure_html(item, f"s{number}-") for number, item in enumerate(page.similarities)),
        *map(_table_html, page.statistics[1:]),
    ]
    return [
        ("about", "What was trained", _about_html(page.about) if page.about else ""),
        ("results", "Results", "\n".join(results)),
        ("curves", "Curves", "\n".join(curves)),
        ("map", "Map of the images", "" if page.drawn_map is None else map_html(page.drawn_map)),
        ("retrieval", "Retrieved neighbours", "\n".join(map(retrieval_html, page.retrievals))),
        ("statistics", "The embedding in numbers", "\n".join(statistics)),
        ("settings", "Settings", "\n".join(map(_table_html, page.settings))),
        ("rerun", "How to run it again", "\n".join(_command_html(*pair) for pair in page.rerun)),
    ]


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")  # two commands at once do not share it
    try:
        # A file name that is not valid UTF-8 shows a question mark.
        temporary.write_bytes(text.encode("utf-8", errors="replace"))
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _paragraphs(sentences: Sequence[str]) -> str:
    return "\n".join(f"<p>{html.escape(sentence)}</p>" for sentence in sentences)


def _about_html(facts: Sequence[tuple[str, str]]) -> str:
    rows = "".join(
        f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(text)}</dd></div>" for name, text in facts
    )
    return f'<dl class="about">{rows}</dl>'


def _command_html(words: str, command: str) -> str:
    # The copy button stays hidden until the script has checked that it works.
    copy = '<button type="button" class="copy" hidden>Copy</button>'
    said = f"<p>{html.escape(words)}</p>" if words else ""
    return (
        f'{said}<div class="command"><pre tabindex="0"><code>{html.escape(command)}</code></pre>{copy}</div>'
    )


def _section_html(key: str, heading: str, body: str) -> str:
    opening = f'<section id="{key}" aria-labelledby="{key}-heading">'
    return f'{opening}\n<h2 id="{key}-heading">{heading}</h2>\n{body}\n</section>'


def _table_html(table: Table) -> str:
    """Render a table; long ones are collapsed."""
    if len(table.rows) <= ROWS_SHOWN_OPEN:
        return f'<div class="prose">{table.html()}</div>'
    title = html.escape(table.title or "All settings")
    body = replace(table, title="").html()
    return f'<details class="prose"><summary>{title} ({len(table.rows)})</summary>{body}</details>'


def _figure_html(item: PageFigure, prefix: str) -> str:
    caption = f"<figcaption>{html.escape(item.caption)}</figcaption>" if item.caption else ""
    return f'<figure class="plot">{_inline_svg(svg_text(item.figure), item.alt, prefix)}{caption}</figure>'


def _inline_svg(text: str, alt: str, prefix: str) -> str:
    """Embed matplotlib's SVG: unique identifiers, the page's text colour, an accessible name."""
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

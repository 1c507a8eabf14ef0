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

from maskcon._utils.files import write_atomically
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


@dataclass(frozen=True)
class Section:
    """A section of a page: identifier, heading and HTML; without a body it is left out."""

    key: str
    heading: str
    body: str

    def html(self) -> str:
        """Render the section with its heading."""
        opening = f'<section id="{self.key}" aria-labelledby="{self.key}-heading">'
        return f'{opening}\n<h2 id="{self.key}-heading">{self.heading}</h2>\n{self.body}\n</section>'


def write_page(path: str | os.PathLike[str], page: Page) -> Path:
    """Write the page atomically; returns its path."""
    drawn = page.map_data if page.map_data is not None and page.map_data.has_points else None
    data = "" if drawn is None else map_json(drawn)
    sections = _sections(replace(page, map_data=drawn))
    text = page_html(page.title, page.summary, sections, footer=page.footer, data=data)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    # A file name that is not valid UTF-8 shows a question mark.
    write_atomically(target, text.encode("utf-8", errors="replace"))
    return target


def page_html(
    title: str, summary: Sequence[str], sections: Sequence[Section], *, footer: str = "", data: str = ""
) -> str:
    """Fill the template: a title, sentences, sections with a list of contents; data: an element for the script."""
    shown = [section for section in sections if section.body]
    script = "\n".join(package_text(name).rstrip("\n") for name in ("page.js", "page_map.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return string.Template(package_text("page.html")).substitute(
        title=html.escape(title),
        style=package_text("page.css").rstrip("\n"),
        script=script,
        # Only this script may run, even if a name were left unescaped.
        script_hash=f"sha256-{digest}",
        summary=_paragraphs(summary),
        contents="".join(f'<a href="#{section.key}">{section.heading}</a>' for section in shown),
        sections="\n".join(section.html() for section in shown),
        footer=html.escape(footer),
        data=data,
    )


def _sections(page: Page) -> list[Section]:
    results = (
        [_paragraphs(page.result_notes), *(table.html() for table in page.tables)] if page.tables else []
    )
    curves = [_figure_html(item, f"c{number}-") for number, item in enumerate(page.figures)]
    statistics = [
        *(f'<div class="measures">{table.html()}</div>' for table in page.statistics[:1]),
        *(_figure_html(item, f"s{number}-") for number, item in enumerate(page.similarities)),
        *map(table_html, page.statistics[1:]),
    ]
    return [
        Section("about", "What was trained", _about_html(page.about) if page.about else ""),
        Section("results", "Results", "\n".join(results)),
        Section("curves", "Curves", "\n".join(curves)),
        Section("map", "Map of the images", "" if page.map_data is None else map_html(page.map_data)),
        Section("retrieval", "Retrieved neighbours", "\n".join(map(retrieval_html, page.retrievals))),
        Section("statistics", "The embedding in numbers", "\n".join(statistics)),
        Section("settings", "Settings", "\n".join(map(table_html, page.settings))),
        Section("rerun", "How to run it again", "\n".join(_command_html(*pair) for pair in page.rerun)),
    ]


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


def table_html(table: Table) -> str:
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

"""One self-contained HTML file: no network, no other file, all data escaped.

write_page("report.html", "First run", ["Recall@1 rose."], [Section("results", "Results", part("table", table))])
"""

from __future__ import annotations

import base64
import hashlib
import html
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from maskcon._utils.files import make_folder, write_atomically
from maskcon._utils.text import printable
from maskcon.report.figures import PageFigure, svg_text
from maskcon.report.formats import Table
from maskcon.report.style import INK

ROWS_SHOWN_OPEN = 12


@dataclass(frozen=True)
class Section:
    """A section of a page: identifier, heading and HTML; without a body it is left out."""

    key: str
    heading: str
    body: str


def _shown(value: Any) -> Any:
    """Escape control characters of a name, and those that reorder text; leave rendered parts unchanged."""
    return printable(value) if type(value) is str else value


@cache
def _templates() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("maskcon.report", ""),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def part(name: str, *values: Any) -> Markup:
    """Render a part of `parts.html`, such as "table"; values are escaped."""
    rendered: Markup = getattr(_templates().get_template("parts.html").module, name)(*values)
    return rendered


def joined(parts: Sequence[Markup]) -> Markup:
    """Join rendered parts, one below the other."""
    return Markup("\n").join(parts)


def table_html(table: Table) -> Markup:
    """Render a table; long ones are collapsed."""
    return part("prose_table", table, ROWS_SHOWN_OPEN)


def write_page(
    path: str | os.PathLike[str],
    title: str,
    summary: Sequence[str] = (),
    sections: Sequence[Section] = (),
    *,
    footer: str = "",
    data: Mapping[str, Any] | None = None,
) -> Path:
    """Write a page atomically, see `page_html`; return its path."""
    target = Path(path)
    make_folder(target.parent)
    text = page_html(title, summary, sections, footer=footer, data=data)
    # A file name that is not valid UTF-8 shows a question mark.
    write_atomically(target, text.encode("utf-8", errors="replace"))
    return target


def page_html(
    title: str,
    summary: Sequence[str],
    sections: Sequence[Section],
    *,
    footer: str = "",
    data: Mapping[str, Any] | None = None,
) -> str:
    """Fill in `page.html`: title, sentences, sections with a list of contents, and the data of the map."""
    package = _templates().loader
    assert package is not None

    def file(name: str) -> Markup:
        return Markup(package.get_source(_templates(), name)[0].rstrip("\n"))

    script = file("page.js") + "\n" + file("page_map.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        _templates()
        .get_template("page.html")
        .render(
            title=title,
            style=file("page.css"),
            script=script,
            script_hash=f"sha256-{digest}",  # only this script may run, even if a name were left unescaped
            summary=summary,
            sections=[section for section in sections if section.body],
            footer=footer,
            data=data,
        )
    )


def figure_html(item: PageFigure, prefix: str) -> Markup:
    """Render a figure as inline SVG; the prefix makes its identifiers unique."""
    return part("figure", Markup(_inline_svg(svg_text(item.figure), item.alt, prefix)), item.caption)


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

"""One self-contained HTML file: no network, no other file, nothing of the data taken for markup.

write_page("report.html", "First run", ["Recall@1 rose."], [Section("results", "Results", table.html())])
"""

from __future__ import annotations

import base64
import hashlib
import html
import importlib.resources
import os
import re
import string
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from maskcon._utils.files import write_atomically
from maskcon.report.figures import svg_text
from maskcon.report.formats import Table
from maskcon.report.style import INK

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROWS_SHOWN_OPEN = 12


@dataclass(frozen=True)
class PageFigure:
    """A figure with its alternative text and a caption."""

    figure: Figure
    alt: str
    caption: str = ""


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


def write_page(
    path: str | os.PathLike[str],
    title: str,
    summary: Sequence[str] = (),
    sections: Sequence[Section] = (),
    *,
    footer: str = "",
    data: str = "",
) -> Path:
    """Write a page, see `page_html`, atomically; returns its path."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    text = page_html(title, summary, sections, footer=footer, data=data)
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
        summary=paragraphs(summary),
        contents="".join(f'<a href="#{section.key}">{section.heading}</a>' for section in shown),
        sections="\n".join(section.html() for section in shown),
        footer=html.escape(footer),
        data=data,
    )


def package_text(name: str) -> str:
    """Read a file of this package, such as `page.css`."""
    return importlib.resources.files("maskcon.report").joinpath(name).read_text(encoding="utf-8")


def paragraphs(sentences: Sequence[str]) -> str:
    """Render sentences as paragraphs."""
    return "\n".join(f"<p>{html.escape(sentence)}</p>" for sentence in sentences)


def about_html(facts: Sequence[tuple[str, str]]) -> str:
    """Render names with their texts as a list of definitions."""
    rows = "".join(
        f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(text)}</dd></div>" for name, text in facts
    )
    return f'<dl class="about">{rows}</dl>' if rows else ""


def command_html(words: str, command: str) -> str:
    """Render a text with a command and a button that copies it."""
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


def figure_html(item: PageFigure, prefix: str) -> str:
    """Render a figure as inline SVG; the prefix makes its identifiers unique."""
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

"""The contact sheet of the explorer: one HTML file with every kind and its images."""

from __future__ import annotations

import base64
import html
import string
from collections.abc import Callable, Sequence
from typing import Any

from maskcon._utils.text import counted, printable
from maskcon.app.images import MissingImageError, media_type

SIDE = 128
PAGE = string.Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>$title</title>
<style>
body { font: 15px/1.4 system-ui, sans-serif; margin: 2rem; max-width: 80rem }
h1 { font-size: 1.4rem } h2 { font-size: 1.15rem; margin: 2rem 0 .3rem } h3 { font-size: 1rem; margin: 1rem 0 .3rem }
p { margin: 0; opacity: .75 } figure { margin: 0 0 .3rem; display: flex; flex-wrap: wrap; gap: 4px }
img { height: 96px; border-radius: 3px } .borderline { opacity: .7; outline: 2px dashed #888; outline-offset: -2px }
section section { break-inside: avoid }
</style>
</head>
<body>
<h1>$title</h1>
<p>$numbers. Dashed: images between two kinds.</p>
$classes
</body>
</html>
""")


def sheet_html(
    title: str, classes: Sequence[dict[str, Any]], thumbnail: Callable[[int, int], bytes]
) -> bytes:
    """Draw the sheet of all kinds.

    Args:
        classes: as `PageData.classes` describes them.
        thumbnail: (row, side) -> encoded image.
    """
    kinds = sum(len(group["kinds"]) for group in classes)
    images = sum(group["images"] for group in classes)
    numbers = ", ".join(
        (
            counted(images, "image"),
            counted(len(classes), "coarse class", "coarse classes"),
            counted(kinds, "kind"),
        )
    )
    text = PAGE.substitute(
        title=_text(title),
        numbers=numbers,
        classes="\n".join(_class(group, thumbnail) for group in classes),
    )
    return text.encode("utf-8", "replace")


def _class(group: dict[str, Any], thumbnail: Callable[[int, int], bytes]) -> str:
    kinds = "\n".join(_kind(kind, thumbnail) for kind in group["kinds"])
    number = f"{counted(group['images'], 'image')}, {counted(len(group['kinds']), 'kind')}"
    return f"<section>\n<h2>{_text(group['name'])}</h2>\n<p>{number}</p>\n{kinds}\n</section>"


def _kind(kind: dict[str, Any], thumbnail: Callable[[int, int], bytes]) -> str:
    shown = [_image(row, "typical", thumbnail) for row in kind["typical"]]
    shown += [_image(row, "borderline", thumbnail) for row in kind["borderline"]]
    number = counted(kind["size"], "image")
    return f"<section><h3>{_text(kind['name'])}: {number}</h3><figure>{''.join(shown)}</figure></section>"


def _image(row: int, role: str, thumbnail: Callable[[int, int], bytes]) -> str:
    try:
        content = thumbnail(row, SIDE)
    except MissingImageError:
        return ""
    data = base64.b64encode(content).decode()
    return f'<img class="{role}" alt="{role} image" src="data:{media_type(content)};base64,{data}">'


def _text(text: str) -> str:
    return html.escape(printable(text))

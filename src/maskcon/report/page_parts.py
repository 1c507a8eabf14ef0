"""What the parts of a page share: its files in the package, pictures inside the text, data for its script."""

from __future__ import annotations

import base64
import importlib.resources
import io
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL import Image


def package_text(name: str) -> str:
    """A file of this package, such as `page.css`."""
    return importlib.resources.files("maskcon.report").joinpath(name).read_text(encoding="utf-8")


def picture_uri(picture: Image.Image, *, exact: bool, quality: int = 82) -> str:
    """A picture as an address that holds it: PNG where every pixel counts, else JPEG."""
    stream = io.BytesIO()
    if exact:
        picture.save(stream, format="PNG", optimize=True)
        return _data_uri("image/png", stream.getvalue())
    # Colour at half size on blocks of 16 pixels: tiles of a multiple of 16 do not run into each other.
    picture.save(stream, format="JPEG", quality=quality, optimize=True, subsampling="4:2:0")
    return _data_uri("image/jpeg", stream.getvalue())


def json_script(identifier: str, content: Any) -> str:
    """Data for the page's script, in an element that a browser does not run."""
    # Inside a script element only `<` could end it or open a comment.
    text = json.dumps(content, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="{identifier}">{text}</script>'


def _data_uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"

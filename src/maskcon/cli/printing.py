"""Print text that may hold names from the data."""

from __future__ import annotations

from typing import Any

import typer

from maskcon._utils.text import printable


def echo(text: str, *, err: bool = False, **style: Any) -> None:
    """Print text; escape characters that control a terminal."""
    typer.secho("\n".join(map(printable, text.split("\n"))), err=err, **style)

"""Commands in this process: their refusals, the methods that they know, and pictures to give them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image
from typer.testing import CliRunner

from maskcon._utils.errors import MaskconError
from maskcon.cli import app

NAMES = ["selfcon", "nnclr", "ascl", "supce", "supcon", "grafit", "coins", "maskcon", "supfine"]


def refused(*arguments: str) -> str:
    """The one line of a refusal, through the same functions but in this process, which is faster."""
    result = CliRunner().invoke(app, list(arguments))
    assert isinstance(result.exception, MaskconError), result.output
    assert result.exception.exit_code == 2
    text = str(result.exception)
    assert "\n" not in text
    return text


def pictures(folder: str, classes: Sequence[str]) -> None:
    """Twelve pictures a class, under the current directory."""
    generator = np.random.default_rng(0)
    for name in classes:
        Path(folder, name).mkdir(parents=True)
        for number in range(12):
            pixels = generator.integers(0, 255, (20, 30, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(Path(folder, name, f"{number}.png"))

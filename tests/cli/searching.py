"""`maskcon index` and `maskcon search` in this process, and pictures for them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image
from typer.testing import CliRunner

from maskcon._utils.errors import MaskconError
from maskcon.cli import app

NAMES = ["a.png", "with space.png", 'it\'s "quoted".png', "ねこ/猫.png", "🐈.jpg"]


def picture(path: Path, seed: int, size: tuple[int, int] = (16, 16)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def call(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stderr + result.stdout if arguments[0] == "index" else result.stdout  # notes go to stderr


def refused(kind: type[MaskconError], *arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert isinstance(result.exception, kind), (result.output, result.exception)
    assert "\n" not in str(result.exception)
    return str(result.exception)


def answers(run: Path, *arguments: object) -> list[list[tuple[str, float]]]:
    found = json.loads(call("search", run, *arguments, "--json"))
    assert found["search"] == "exact"
    return [[(hit["path"], hit["score"]) for hit in query["results"]] for query in found["queries"]]

"""`maskcon export`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from maskcon.cli import options
from maskcon.cli.printing import echo


def export(
    run: options.Run,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder to write; by default `export` in the run's folder."),
    ] = None,
    onnx: Annotated[bool, typer.Option("--onnx", help="Also write model.onnx (extra `onnx`).")] = False,
    data_root: options.DataRoot = None,
    download: options.Download = False,
    as_json: options.Json = False,
) -> None:
    """Export a run's encoder for plain PyTorch, Hugging Face and ONNX.

    Writes a folder with a model card. The export is compared with the run's encoder on the run's test images, or on
    random images if those are missing; nothing is written if it differs.

    Example: `maskcon export runs/photos-teachcon-seed0 --onnx`
    """
    from maskcon.api import Run
    from maskcon.cli.terminal import Terminal
    from maskcon.export import export_run

    place = options.machine(data_root=data_root, download=download)
    terminal = Terminal()
    try:
        exported = export_run(Run.open(run), out, onnx=onnx, machine=place, callback=terminal)
    finally:
        terminal.on_end()
    if as_json:
        record = {"folder": str(exported.folder), "files": list(exported.files)}
        echo(json.dumps(record | {"differences": [str(line) for line in exported.differences]}))
        return
    for difference in exported.differences:
        echo(str(difference))
    echo(f"export: {exported.folder} ({', '.join(exported.files)})")

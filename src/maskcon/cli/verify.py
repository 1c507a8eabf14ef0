"""`maskcon verify`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from maskcon._utils.errors import CorruptFileError, UsageError
from maskcon._utils.text import counted
from maskcon.cli import options
from maskcon.cli.printing import echo


def verify(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", help="A run, an export, an index, a folder of kinds, or an embeddings file."
        ),
    ],
    as_json: options.Json = False,
) -> None:
    """Check all files of a run, export or index against their checksums.

    Also those of a folder of kinds, or an embeddings file. Other commands check only the files that they read.

    Example: `maskcon verify runs/embedded-teachcon-seed0`
    """
    from maskcon._utils.files import INTACT, SUMS
    from maskcon.training.run_folder import CONFIG, RESULT, read_result

    if not path.exists():
        raise UsageError(f"there is no {path}")
    states = dict(_states(path))
    if (path / CONFIG).is_file() and not (path / SUMS).exists():
        if (path / RESULT).exists():
            read_result(path)  # fails if the checksums have been lost
        echo("no checksums: the run is not finished, or was made by an earlier version", err=True)
    elif not states:
        raise UsageError(
            f"{path} holds nothing with checksums; give a run, an export, an index, kinds or embeddings"
        )
    if as_json:
        echo(json.dumps(states))
    else:
        for name, state in states.items():
            echo(f"{name}: {state}")
    bad = [name for name, state in states.items() if state != INTACT]
    if bad:
        raise CorruptFileError(f"{counted(len(bad), 'file')} of {path} are not intact; the first is {bad[0]}")


def _states(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the relative path and the state of each file with a checksum and of each checkpoint."""
    from maskcon._utils.files import INTACT, SUMS, file_states
    from maskcon.discovery.journal import EDITS, read_records
    from maskcon.discovery.kinds_folder import STATE, read_folder
    from maskcon.export.write import CHECKED as EXPORTED
    from maskcon.export.write import MODEL
    from maskcon.retrieval.embeddings_file import read_embeddings
    from maskcon.training.checkpoint import load_checkpoint
    from maskcon.training.run_folder import CHECKED, CHECKPOINTS

    def state(read: Callable[[Path], object], of: Path) -> str:
        try:
            read(of)
        except CorruptFileError as error:
            return str(error)
        return INTACT

    if not path.is_dir():
        yield path.name, state(read_embeddings, path)
        return
    for file in sorted(path.rglob("*")):
        inside = file.relative_to(path)
        name, folder = str(inside), file.parent
        if any(part.startswith(".") for part in inside.parts):  # being written
            continue
        if folder.name == CHECKPOINTS and file.name.startswith("step-"):
            yield name, state(load_checkpoint, file)
        elif file.name == SUMS and folder.parent.name != CHECKPOINTS:
            required = EXPORTED if (folder / MODEL).exists() else CHECKED
            found = file_states(folder, required)
            yield from ((str(inside.parent / name), state) for name, state in found.items())
        elif file.suffix == ".parquet":
            yield name, state(read_embeddings, file)
        elif file.name == STATE:
            yield name, state(read_folder, folder)
        elif file.name == EDITS:
            yield name, state(read_records, file)

"""`maskcon verify`."""

from __future__ import annotations

import json

from maskcon._utils.errors import CorruptFileError, UsageError
from maskcon._utils.text import counted
from maskcon.cli import options
from maskcon.cli.printing import echo


def verify(run: options.Run, as_json: options.Json = False) -> None:
    """Compare the files of a run with their checksums: results, checkpoints, embeddings and indexes in its folder.

    Every command checks the files of a run that it reads; this one checks all of them.

    Example: `maskcon verify runs/embedded-teachcon-seed0`
    """
    from maskcon.retrieval.embeddings_file import read_embeddings
    from maskcon.training.checkpoint import load_checkpoint
    from maskcon.training.run_folder import CHECKPOINTS, INTACT, file_states, is_new

    if is_new(run):
        raise UsageError(f"{run} is not a run folder")
    states = file_states(run)
    if not states:
        echo("no checksums: the run is not finished, or of an earlier version", err=True)
    sealed = [(path, load_checkpoint) for path in sorted((run / CHECKPOINTS).glob("step-*"))]
    for path, read in [*sealed, *((path, read_embeddings) for path in sorted(run.rglob("*.parquet")))]:
        try:
            read(path)
            states[str(path.relative_to(run))] = INTACT
        except CorruptFileError as error:
            states[str(path.relative_to(run))] = str(error)
    if as_json:
        echo(json.dumps(states))
    else:
        for name, state in states.items():
            echo(f"{name}: {state}")
    bad = [name for name, state in states.items() if state != INTACT]
    if bad:
        raise CorruptFileError(f"{counted(len(bad), 'file')} of {run} are not intact; the first is {bad[0]}")

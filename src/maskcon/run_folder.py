"""The folder of a run: what may be in it, and who may write to it.

runs/<name>/config.yaml           settings, complete
            environment.json      versions, device, threads
            journal.jsonl         what happened, a line an event
            checkpoints/          to go on from
            encoder.safetensors   the query encoder, under the usual parameter names
            result.json           recall@K, the raw-pixel floor, times; its presence means finished
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from maskcon.config import RunConfig
from maskcon.errors import CorruptFileError, UsageError

CONFIG, ENVIRONMENT, JOURNAL = "config.yaml", "environment.json", "journal.jsonl"
CHECKPOINTS, ENCODER, RESULT = "checkpoints", "encoder.safetensors", "result.json"


def short_name(source: str) -> str:
    """A data set's name, or the last part of the path of a folder of images."""
    folder = Path(source).expanduser()
    return folder.resolve().name if folder.is_dir() else source


def default_folder(config: RunConfig) -> Path:
    """``runs/<source>-<method>-seed<seed>``, with the last part of a path for a folder of images."""
    return Path("runs") / f"{short_name(config.source)}-{config.method}-seed{config.seed}"


def is_finished(folder: Path, config: RunConfig) -> bool:
    """Whether the folder holds this very run, done. Another run's folder, or a folder of other things, is refused."""
    if not (folder / CONFIG).is_file():
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"{folder} is a file; choose another --out")
        if folder.is_dir() and any(not path.name.startswith(".") for path in folder.iterdir()):
            raise UsageError(f"{folder} is not empty and not a run folder; choose another --out")
        return False
    differences = RunConfig.from_yaml(folder / CONFIG).differences(config)
    if differences:
        raise UsageError(
            f"{folder} holds a run with other settings ({'; '.join(differences)}); choose another --out"
        )
    return _has_result(folder)


def make_writable(folder: Path) -> None:
    """Fail now, not at the first checkpoint, when nothing can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe-{os.getpid()}"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error.strerror}; choose another --out") from None


def read_result(folder: Path) -> dict[str, Any]:
    """result.json of a finished run."""
    if not (folder / CONFIG).is_file():
        raise UsageError(f"{folder} is not a run folder: it has no {CONFIG}")
    if not _has_result(folder):
        raise UsageError(f"the run in {folder} is not finished; give its command again, it goes on by itself")
    try:
        result = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    except ValueError as error:
        raise CorruptFileError(
            f"{folder / RESULT} is damaged ({error}); delete it and give the command again"
        ) from None
    if not isinstance(result, dict) or not isinstance(result.get("recall"), dict):
        raise CorruptFileError(f"{folder / RESULT} is not a result; delete it and give the command again")
    return result


def _has_result(folder: Path) -> bool:
    return (folder / RESULT).is_file() and (folder / ENCODER).is_file()


def json_bytes(values: Mapping[str, Any]) -> bytes:
    return (json.dumps(values, indent=2, allow_nan=False) + "\n").encode()

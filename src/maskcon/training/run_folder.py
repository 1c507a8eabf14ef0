"""The folder of a run: what may be in it, and who may write to it.

runs/<name>/config.yaml           settings, complete
            choices.json          settings chosen automatically, with reasons
            environment.json      versions, device, threads
            journal.jsonl         events, one JSON object per line
            checkpoints/          to resume from
            encoder.safetensors   the query encoder, under the usual parameter names
            SHA256SUMS            of the files above and of result.json, once the run is finished
            result.json           recall@K, the raw-pixel floor, times; its presence means finished
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from maskcon._utils.errors import CorruptFileError, UsageError
from maskcon._utils.files import INTACT, LOST, SUMS, file_states, make_folder
from maskcon.config.earlier import refuse_to_resume
from maskcon.config.settings import RunConfig, read_values
from maskcon.data import absolute, is_path, is_there
from maskcon.data.huggingface import PREFIX, Address
from maskcon.data.manifest import is_manifest
from maskcon.training.journal import FAILED, read_ends

CONFIG, ENVIRONMENT, JOURNAL = "config.yaml", "environment.json", "journal.jsonl"
CHECKPOINTS, ENCODER, RESULT = "checkpoints", "encoder.safetensors", "result.json"
CHOICES = "choices.json"
CHECKED = (CONFIG, ENCODER, RESULT)  # must be listed in SHA256SUMS

# Settings that may change when a run is resumed that stopped at NaN or Inf.
STEERING = ("learning_rate", "warmup_epochs", "weight_decay", "precision")
SUMS_IN = "checksums"  # in a result: the file that lists them; results of earlier versions have none
RESULT_KEYS = {"recall": dict, "raw_pixels": dict, "method": str, "data": str, "seconds": float | int}


def short_name(source: str) -> str:
    """Return a dataset's name, or the last part of its path without manifest suffix.

    >>> short_name("cifar100"), short_name("lists/photos.csv"), short_name("hf:user/birds,coarse=family")
    ('cifar100', 'photos', 'birds')
    """
    if source.startswith(PREFIX):
        return Address.parse(source).short_name
    if not is_path(source):
        return source
    path = Path(absolute(source))
    return Path(source).stem if not path.is_dir() and is_manifest(path) else path.name or source


def source_of(folder: Path, source: str, result: Mapping[str, Any]) -> str:
    """Return where the data of a finished run are now.

    They are looked for at the recorded path, then at `source` from the current directory.
    """
    recorded = str(result.get("source_path", source))
    for place in dict.fromkeys((recorded, source)):
        if is_there(place):
            return place
    if recorded != source:
        raise UsageError(
            f"the images of the run in {folder} are no longer at {recorded}; put them back, or run the command "
            f"in a directory from which {source} leads to them"
        )
    raise UsageError(
        f"the run in {folder} was trained on {source!r}, which is neither a built-in dataset nor found from here: "
        "if it is a path, run the command where it was trained; a Dataset from Python has to be passed again"
    )


def default_folder(source: str, method: str, given: Mapping[str, Any]) -> Path:
    """Return ``runs/<source>-<method>-seed<seed>``, the source by its `short_name`.

    It depends only on the given settings, so that the same command finds it again. Runs of a frozen backbone have
    ``-frozen`` after the method, those that train its last stages ``-thaw2``, runs with known names ``-named``.

    >>> default_folder("./photos", "maskcon", {"freeze": True, "seed": 3}).name
    'photos-maskcon-frozen-seed3'
    """
    kind = f"{method}-frozen" if given.get("freeze") is True else method
    kind = f"{method}-thaw{given['thaw']}" if given.get("thaw") else kind
    kind += "-named" if given.get("fine") is not None else ""
    return Path("runs") / f"{short_name(source)}-{kind}-seed{given.get('seed', 0)}"


def is_new(folder: Path) -> bool:
    """Return whether a folder holds no run yet; raise if it holds other things."""
    try:
        if (folder / CONFIG).is_file():
            return False
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"{folder} is a file; choose another --out")
        inside = [path.name for path in folder.iterdir()] if folder.exists() else []
    except OSError as error:  # too long a name, a folder that may not be entered
        raise UsageError(f"cannot use {folder}: {error.strerror}; choose another --out") from None
    # choices are written just before the settings: a kill in between leaves only the choices
    if any(not name.startswith(".") and name != CHOICES for name in inside):
        raise UsageError(f"{folder} is not empty and not a run folder; choose another --out")
    return True


def check_place(folder: Path, source: str | None) -> None:
    """Raise, before anything slow, if a folder cannot be written; create nothing.

    source: where the images are. The folder must not lie among them: its figures would be read as images.
    """
    try:
        images = Path(absolute(source)) if source is not None and is_path(source) else None
        if images is not None and images.is_dir() and folder.resolve().is_relative_to(images):
            inside = folder.resolve().relative_to(images)
            if not any(part.startswith(".") for part in inside.parts):  # hidden ones are never read
                raise UsageError(
                    f"{folder} would lie among the images of {source}; choose an --out outside of them"
                )
        place = folder
        while not place.exists():
            place = place.parent
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error.strerror}; choose another --out") from None


def is_finished(folder: Path, config: RunConfig) -> bool:
    """Return whether the folder holds this run, finished; raise if it holds another."""
    if is_new(folder):
        return False
    saved = folder / CONFIG
    before, finished = RunConfig.from_yaml(saved), _has_result(folder)
    steered = before.changed(**{key: getattr(config, key) for key in STEERING})
    if before != config and (steered != config or finished or not _became_nan(folder)):
        differences = "; ".join(before.differences(config))
        raise UsageError(f"{folder} holds a run with other settings ({differences}); choose another --out")
    if not finished:
        refuse_to_resume(read_values(saved), saved)
        return False
    return True


def _became_nan(folder: Path) -> bool:
    """Return whether the run in a folder stopped at NaN or Inf."""
    events = read_ends(folder / JOURNAL)
    return bool(events) and events[-1]["kind"] == FAILED


def recorded_environment(folder: Path) -> dict[str, Any]:
    """Read environment.json of the run in a folder; empty if there is none."""
    path = folder / ENVIRONMENT
    if not path.exists():
        return {}
    return read_json(path, "delete it to resume with the threads that are chosen now")


def read_json(path: Path, remedy: str) -> dict[str, Any]:
    """Read a JSON object; errors name the remedy."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(f"{path} is damaged ({type(error).__name__}); {remedy}") from None
    if not isinstance(values, dict):
        raise CorruptFileError(f"{path} is damaged (no JSON object); {remedy}")
    return values


def make_writable(folder: Path) -> None:
    """Create the folder and raise if it cannot be written."""
    try:
        make_folder(folder)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error.strerror}; choose another --out") from None


def read_result(folder: Path) -> dict[str, Any]:
    """Read result.json of a finished run; raise if a file changed since training."""
    if not (folder / CONFIG).is_file():
        raise UsageError(f"{folder} is not a run folder: it has no {CONFIG}")
    if not _has_result(folder):
        raise UsageError(f"the run in {folder} is not finished; rerun the same command to resume")
    states = file_states(folder, CHECKED, "the run")
    for name, state in states.items():
        if state != INTACT and (name, state) != (CHOICES, LOST):  # no command needs the reasons of a setting
            again = ", or delete it and rerun the same command: it is written again from the last checkpoint"
            raise CorruptFileError(
                f"{folder / name} {state} since training ({SUMS}); restore it"
                f"{again if name in (ENCODER, RESULT) else ''}"
            )
    remedy = "delete it and rerun the same command"
    result = read_json(folder / RESULT, remedy)
    missing = [key for key, kind in RESULT_KEYS.items() if not isinstance(result.get(key), kind)]
    if missing:
        raise CorruptFileError(f"{folder / RESULT} is not complete: {missing[0]} is missing; {remedy}")
    if SUMS_IN in result and not states:
        raise CorruptFileError(
            f"{folder / result[SUMS_IN]} has been lost, so nothing here can be checked; restore it, or delete "
            f"{RESULT} and rerun the same command: the encoder is written again from the last checkpoint"
        )
    return result


def _has_result(folder: Path) -> bool:
    return (folder / RESULT).is_file() and (folder / ENCODER).is_file()


def json_bytes(values: Mapping[str, Any]) -> bytes:
    return (json.dumps(values, indent=2, allow_nan=False) + "\n").encode()

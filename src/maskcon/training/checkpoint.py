"""Checkpoints: written to a temporary name, synced, renamed, checked before use.

    checkpoints/step-00001234/state.safetensors   every tensor of the training state
                              state.json          counters and plain values
                              SHA256SUMS          of the two (`sha256sum -c` reads it)
                step-00001234.old/                the one that a second save of the same step replaced
                damaged-step-00001234/            set aside: it did not match its checksum

During a save the older checkpoint stays valid, so a kill costs only the work since it.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from maskcon._utils.errors import CorruptFileError, MaskconError
from maskcon._utils.files import (
    SUMS,
    checksums,
    failpoint,
    make_folder,
    read_checksums,
    sync_folder,
    write_synced,
)
from maskcon._utils.paths import check_regular

CHECKPOINT_FORMAT = 3
TENSORS, VALUES = "state.safetensors", "state.json"
AFTER_NAN = (
    "it continues from the last checkpoint. If it stops again, the weights there are too large already: delete the "
    "folder checkpoints of the run, and the same command starts over"
)
_NAME = re.compile(r"step-(\d{8,})(\.old)?")


@dataclass
class Progress:
    """Counters of a run; saved with every checkpoint."""

    step: int = 0  # steps done
    evaluated_step: int = -1
    seconds: float = 0.0  # of training: priming and steps
    cpu_seconds: float = 0.0
    images: int = 0
    warned: bool = False
    contrast_sum: float = 0.0  # sum of the contrastive losses of this epoch's steps so far
    contrast_steps: int = 0  # how many those are
    changes: list[dict[str, Any]] = field(default_factory=list)  # of settings or machine, when resumed
    evaluations: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Checkpoint:
    """Content of a checkpoint: tensors by name, plain values, and its folder."""

    tensors: Mapping[str, Tensor]
    values: Mapping[str, Any]
    folder: Path


def save_checkpoint(
    root: Path, step: int, tensors: Mapping[str, Tensor], values: Mapping[str, Any], *, keep: int = 2
) -> Path:
    """Save as ``root/step-<step>``, then delete older ones until `keep` are left."""
    final = root / f"step-{step:08d}"
    replaced = root / f"{final.name}.old"
    temporary = root / f".{final.name}.tmp"
    plain = {**values, "step": step, "tensors": sorted(tensors)}
    payload = {
        TENSORS: safetensors.torch.save({name: t.detach().cpu().contiguous() for name, t in tensors.items()}),
        VALUES: (json.dumps(plain, indent=1, allow_nan=False) + "\n").encode(),
    }
    payload[SUMS] = checksums(payload)
    try:
        make_folder(root)
        for left in root.glob(".step-*.tmp"):  # by saves that were killed
            shutil.rmtree(left, ignore_errors=True)
        temporary.mkdir()
        for name, data in payload.items():
            failpoint(f"before-{name}")
            write_synced(temporary / name, data)
        sync_folder(temporary)
        failpoint("before-rename")
        if final.exists():  # the same step again: after a resume from it, or an evaluation
            shutil.rmtree(replaced, ignore_errors=True)
            final.rename(replaced)  # it can also be loaded by this name
            failpoint("between-renames")
        temporary.rename(final)
        failpoint("after-rename")
        sync_folder(root)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise MaskconError(
            f"could not save the checkpoint of step {step} in {root}: {error.strerror or error}; "
            "the one before it is intact. Free some space and rerun the same command to resume"
        ) from error
    others = [folder for folder in _steps(root) if folder != final]
    for old in others[: len(others) + 1 - keep]:
        failpoint("before-removing-old")
        shutil.rmtree(old, ignore_errors=True)
    return final


def load_latest(root: Path, *, set_aside: bool = False) -> tuple[Checkpoint | None, list[str]]:
    """Return the newest valid checkpoint, and a line for each damaged one.

    Args:
        set_aside: rename damaged checkpoints, so that they are reported once and never counted again.

    Raises:
        MaskconError: a checkpoint cannot be read, which does not mean that it is damaged.
    """
    notes: list[str] = []
    folders = _steps(root)
    for older, folder in reversed(list(enumerate(folders))):
        try:
            return load_checkpoint(folder), notes
        except CorruptFileError as error:
            place = f"; kept as {_set_aside(folder).name}" if set_aside else ""
            notes.append(f"{error}{place}" + ("; falling back to the checkpoint before it" if older else ""))
    if notes:
        notes.append(f"no valid checkpoint is left in {root}: the run starts over")
    return None, notes


def load_checkpoint(folder: Path) -> Checkpoint:
    """Read one checkpoint; files are checked against their checksums before parsing."""
    try:
        for name in (SUMS, TENSORS, VALUES):
            check_regular(folder / name)
        listed = read_checksums((folder / SUMS).read_bytes())
        data = {name: (folder / name).read_bytes() for name in (TENSORS, VALUES)}
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError) as error:  # or bad sums
        raise CorruptFileError(f"checkpoint {folder.name} is incomplete ({error})") from None
    except OSError as error:
        raise _unreadable(folder, error) from error
    for name, content in data.items():
        if listed.get(name) != hashlib.sha256(content).hexdigest():
            raise CorruptFileError(f"checkpoint {folder.name}: {name} does not match its checksum")
    try:
        tensors = safetensors.torch.load(data[TENSORS])
        values = json.loads(data[VALUES])
    except (safetensors.SafetensorError, ValueError) as error:
        raise CorruptFileError(f"checkpoint {folder.name} cannot be read ({error})") from None
    if not isinstance(values, dict):
        raise CorruptFileError(f"checkpoint {folder.name} cannot be read ({VALUES} is not a JSON object)")
    names = set(values.pop("tensors", tensors))
    differing = sorted(names ^ set(tensors))
    if differing:
        problem = "is missing" if differing[0] in names else "is unexpected"
        raise CorruptFileError(f"checkpoint {folder.name} is not complete: {differing[0]} {problem}")
    return Checkpoint(tensors, values, folder)


def _set_aside(folder: Path) -> Path:
    """Rename a damaged checkpoint to a name that `_steps` does not list."""
    places = (folder.with_name(f"damaged-{folder.name}{n or ''}") for n in itertools.count())
    place = next(place for place in places if not place.exists())
    try:
        folder.rename(place)
        sync_folder(folder.parent)
    except OSError as error:
        raise MaskconError(
            f"checkpoint {folder} is damaged and cannot be renamed: {error.strerror}; move it away and rerun"
        ) from error
    return place


def _unreadable(path: Path, error: OSError) -> MaskconError:
    return MaskconError(
        f"cannot read {path}: {error.strerror or error}; nothing was changed. Make it readable and rerun the same "
        "command to resume"
    )


def _steps(root: Path) -> list[Path]:
    """Return checkpoint folders, oldest first."""
    try:
        paths = list(root.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _unreadable(root, error) from error
    found = [(int(m[1]), m[2] is None, path) for path in paths if (m := _NAME.fullmatch(path.name))]
    return [path for _, _, path in sorted(found)]

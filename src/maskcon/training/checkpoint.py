"""Checkpoints that survive: written under a temporary name, synced, renamed, checked before use.

    checkpoints/step-00001234/state.safetensors   every tensor of the training state
                              state.json          counters and plain values
                              SHA256SUMS          of the two (`sha256sum -c` reads it)
                step-00001234.old/                the one that a second save of the same step replaced

At any moment of a save the older checkpoint is whole, so a kill costs the work since it and nothing else.
"""

from __future__ import annotations

import hashlib
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
from maskcon._utils.failpoints import failpoint
from maskcon._utils.files import sync_folder, write_synced

CHECKPOINT_FORMAT = 3
TENSORS, VALUES, SUMS = "state.safetensors", "state.json", "SHA256SUMS"
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
    evaluations: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Checkpoint:
    """What was saved: tensors by name, plain values, and the folder they came from."""

    tensors: Mapping[str, Tensor]
    values: Mapping[str, Any]
    folder: Path


def save_checkpoint(
    root: Path, step: int, tensors: Mapping[str, Tensor], values: Mapping[str, Any], *, keep: int = 2
) -> Path:
    """Save as ``root/step-<step>`` and then drop all but the newest `keep` checkpoints."""
    final = root / f"step-{step:08d}"
    replaced = root / f"{final.name}.old"
    temporary = root / f".{final.name}.tmp"
    payload = {
        TENSORS: safetensors.torch.save({name: t.detach().cpu().contiguous() for name, t in tensors.items()}),
        VALUES: (json.dumps({**values, "step": step}, indent=1, allow_nan=False) + "\n").encode(),
    }
    sums = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in payload.items())
    try:
        root.mkdir(parents=True, exist_ok=True)
        for left in root.glob(".step-*.tmp"):  # by saves that were killed
            shutil.rmtree(left, ignore_errors=True)
        temporary.mkdir()
        for name, data in {**payload, SUMS: sums.encode()}.items():
            failpoint(f"before-{name}")
            write_synced(temporary / name, data)
        sync_folder(temporary)
        failpoint("before-rename")
        if final.exists():  # the same step again: after a resume from it, or an evaluation
            shutil.rmtree(replaced, ignore_errors=True)
            final.rename(replaced)  # under this name, too, it can be loaded
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
    for old in _steps(root)[:-keep]:
        failpoint("before-removing-old")
        shutil.rmtree(old, ignore_errors=True)
    return final


def load_latest(root: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest checkpoint that is whole, and a line for each that was not."""
    notes: list[str] = []
    for folder in reversed(_steps(root)):
        try:
            return load_checkpoint(folder), notes
        except CorruptFileError as error:
            notes.append(f"{error}; falling back to the checkpoint before it")
    return None, notes


def load_checkpoint(folder: Path) -> Checkpoint:
    """Read one checkpoint; anything that does not match its checksum is refused before it is parsed."""
    try:
        listed = _read_sums((folder / SUMS).read_text(encoding="ascii"))
        data = {name: (folder / name).read_bytes() for name in (TENSORS, VALUES)}
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise CorruptFileError(f"checkpoint {folder.name} is incomplete ({error})") from None
    for name, content in data.items():
        if listed.get(name) != hashlib.sha256(content).hexdigest():
            raise CorruptFileError(f"checkpoint {folder.name}: {name} does not match its checksum")
    try:
        tensors = safetensors.torch.load(data[TENSORS])
        values = json.loads(data[VALUES])
    except (safetensors.SafetensorError, ValueError) as error:
        raise CorruptFileError(f"checkpoint {folder.name} cannot be read ({error})") from None
    return Checkpoint(tensors, values, folder)


def _steps(root: Path) -> list[Path]:
    """Checkpoint folders, oldest first."""
    if not root.is_dir():
        return []
    found = [
        (int(m.group(1)), m.group(2) is None, path)
        for path in root.iterdir()
        if (m := _NAME.fullmatch(path.name))
    ]
    return [path for _, _, path in sorted(found)]


def _read_sums(text: str) -> dict[str, str]:
    sums = {}
    for line in text.splitlines():
        digest, separator, name = line.partition("  ")
        if not separator or len(digest) != 64:
            raise ValueError(f"bad line in {SUMS}")
        sums[name] = digest
    return sums

"""Read and write the folder of `maskcon kinds`.

kinds.csv is for people, kinds.json for programs. Only kinds.npz is read again: it holds the kinds with their centres,
and the checksum of the kinds.csv that it replaces. After a kill between two files, that older csv is not taken for an
edit (`journal.replay`). kinds.npz is a zip file that ends with a comment: SEAL and the sha256 (hex) of all bytes before
the digits.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from maskcon._utils.errors import CorruptFileError
from maskcon._utils.files import FolderLock, failpoint, write_atomically
from maskcon._utils.paths import check_regular
from maskcon.data.kinds_file import KindRow, write_kinds
from maskcon.discovery.clusters import Space, Suggestion
from maskcon.discovery.kinds import CoarseClass, Kinds
from maskcon.discovery.summary import criterion, summarise

CSV, JSON, STATE, BACKUP = "kinds.csv", "kinds.json", "kinds.npz", "kinds.before.csv"
FORMAT = 1
SEAL = b"maskcon kinds, sha256="
DIGITS = 64
UNSEALED_END = b"PK\5\6", b"\0\0"  # start and end of the last 22 bytes of an archive without a comment


@dataclass(frozen=True)
class Origin:
    """The encoder and the images that kinds were found in.

    Attributes:
        encoder: sha256 (hex) of the encoder's file.
        source: where the images come from; None for the run's own.
        sheets: coarse class -> file of its contact sheet and a checksum of what it shows.
    """

    encoder: str
    source: str | None
    sheets: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def lock_kinds(folder: Path) -> FolderLock:
    """Return the lock of a folder of kinds."""
    return FolderLock(
        folder, f"`maskcon explore` or another command has {folder} open; end it (Ctrl-C in its terminal)"
    )


def write_folder(folder: Path, kinds: Kinds, origin: Origin, *, keep_backup: bool = False) -> None:
    """Write kinds.npz, kinds.json and kinds.csv; the caller locks the folder.

    Args:
        keep_backup: copy the kinds.csv that is there to kinds.before.csv.
    """
    before = _csv_bytes(folder)
    if keep_backup and before:
        write_atomically(folder / BACKUP, before)
    write_atomically(folder / STATE, _state_bytes(kinds, origin, _digest(before)))
    failpoint("kinds-after-state")
    write_atomically(folder / JSON, describe_bytes(kinds, origin))
    write_kinds(folder / CSV, kinds.rows)


def read_folder(folder: Path) -> tuple[Kinds, Origin] | None:
    """Read the kinds as last written, without edits; None if there are none.

    Raises:
        CorruptFileError: kinds.npz cannot be read.
    """
    try:
        found = _read_state(folder / STATE)
        return None if found is None else found[:2]
    except (ValueError, KeyError, TypeError, IndexError, EOFError, OSError, zipfile.BadZipFile) as error:
        reason = " ".join(str(error).split())
        raise CorruptFileError(
            f"{folder / STATE} cannot be read ({reason}); delete it to find kinds anew"
        ) from None


def replaced_csv(folder: Path) -> str:
    """Return the checksum of the kinds.csv that kinds.npz replaces."""
    found = _read_state(folder / STATE)
    return "" if found is None else found[2]


def describe_bytes(kinds: Kinds, origin: Origin) -> bytes:
    """Return the content of kinds.json: the criterion, and classes with their kinds."""
    record: dict[str, Any] = {"format": FORMAT, "encoder": origin.encoder, "source": origin.source}
    record |= {"images": len(kinds.rows), "criterion": criterion(kinds.spread)}
    record["classes"] = [
        summary.as_json() | {"sheet": origin.sheets.get(summary.coarse, (None,))[0]}
        for summary in summarise(kinds)
    ]
    return (json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _csv_bytes(folder: Path) -> bytes:
    path = folder / CSV
    return path.read_bytes() if path.is_file() else b""


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _state_bytes(kinds: Kinds, origin: Origin, replaces: str) -> bytes:
    state = {
        "format": FORMAT,
        "origin": asdict(origin),
        "replaces": replaces,
        "spread": kinds.spread,
        "answered": sorted(kinds.answered),
        "classes": [
            {
                "name": group.name,
                "kinds": group.kinds,
                "suggestion": asdict(group.suggestion),
                "stability": group.stability,
            }
            for group in kinds.classes.values()
        ],
        "rows": [[row.path, row.coarse, row.kind, row.confidence, row.role] for row in kinds.rows],
    }
    arrays: dict[str, Any] = {"state": np.frombuffer(json.dumps(state).encode(), dtype=np.uint8)}
    for number, group in enumerate(kinds.classes.values()):
        parts = {"mean": group.space.mean, "axes": group.space.axes, "centres": group.centres}
        arrays |= {f"{name}{number}": array for name, array in parts.items()}
    content = io.BytesIO()
    np.savez(content, **arrays)
    with zipfile.ZipFile(content, "a") as archive:
        archive.comment = SEAL + bytes(DIGITS)
    body = content.getvalue()[:-DIGITS]
    return body + _digest(body).encode()


def _read_state(path: Path) -> tuple[Kinds, Origin, str] | None:
    if not path.exists():
        return None
    check_regular(path)
    content = path.read_bytes()
    body, digits = content[:-DIGITS], content[-DIGITS:]
    is_unsealed = (content[-22:-18], content[-2:]) == UNSEALED_END  # written by a version without checksums
    if not is_unsealed and (not body.endswith(SEAL) or digits != _digest(body).encode()):
        raise ValueError("it does not match its checksum")
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        state = json.loads(file["state"].tobytes())
        if state["format"] != FORMAT:
            raise ValueError(f"format {state['format']}, this version reads {FORMAT}")
        groups = [
            CoarseClass(
                name=record["name"],
                space=Space(file[f"mean{number}"], file[f"axes{number}"]),
                centres=file[f"centres{number}"],
                kinds=tuple(record["kinds"]),
                suggestion=_suggestion(record["suggestion"]),
                stability=record["stability"],
            )
            for number, record in enumerate(state["classes"])
        ]
    rows = tuple(KindRow(*values) for values in state["rows"])
    answered = frozenset(state.get("answered", ()))  # absent before questions could be asked
    kinds = Kinds({group.name: group for group in groups}, rows, state["spread"], answered)
    sheets = {name: (sheet[0], sheet[1]) for name, sheet in state["origin"].pop("sheets").items()}
    return kinds, Origin(**state["origin"], sheets=sheets), state["replaces"]


def _suggestion(record: Mapping[str, Any]) -> Suggestion:
    curve: Sequence[float] = record["curve"]
    return Suggestion(**{**record, "curve": tuple(curve)})

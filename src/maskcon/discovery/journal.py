"""Journal edits in edits.jsonl, each durable before it is acknowledged.

    {"maskcon": "edits", "format": 1, "base": sha256 of kinds.npz, "sum": ...}
    {"edit": {"action": "rename", ...}, "id": "...", "sum": ...}
    {"undo": true, "sum": ...}    {"redo": true, "sum": ...}
    {"csv": sha256, "revision": 3, "sum": ...}      before kinds.csv is written: its checksum and revision

`sum` is a checksum over the line and the previous sum. The state is kinds.npz with the journal replayed; a kinds.csv
that does not match its checksum was edited by hand (`Replay.by_hand`). A last line without its end was never
acknowledged and is cut off. A journal of another kinds.npz is out of date: its edits are part of the present one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import CorruptFileError, MaskconError
from maskcon._utils.files import failpoint, sync_file, sync_folder, write_all
from maskcon._utils.paths import check_regular
from maskcon.data.kinds_file import KindRow, kinds_bytes, read_kinds
from maskcon.discovery.edit_kinds import Edit, Take, read_edit
from maskcon.discovery.editor import Editor
from maskcon.discovery.edits import check_edits
from maskcon.discovery.kinds import Embedded, Kinds
from maskcon.discovery.kinds_folder import CSV, STATE, replaced_csv

EDITS = "edits.jsonl"
FORMAT = 1
SUM_DIGITS = 16


@dataclass(eq=False)
class Journal:
    """The journal of a folder, open for appending; the opener locks the folder."""

    path: Path
    size: int  # bytes of complete lines
    last_sum: str

    def append(self, record: dict[str, Any]) -> None:
        """Write one line and wait until it is on the disk; an error changes nothing."""
        line, total = _line(record, self.last_sum)
        try:
            with self.path.open("r+b", buffering=0) as file:
                file.truncate(self.size)  # a failed append may have left more
                file.seek(self.size)
                try:
                    write_all(file, line)
                    failpoint("edit-before-sync")
                    sync_file(file)
                except OSError:
                    file.truncate(self.size)
                    raise
        except OSError as error:
            raise MaskconError(
                f"the edit was not saved: {self.path} cannot be written ({error.strerror or error})"
            ) from None
        self.size, self.last_sum = self.size + len(line), total


@dataclass(eq=False)
class Replay:
    """A state rebuilt from kinds.npz and its journal.

    Attributes:
        answers: id -> revision and text of its edit, for a page that repeats a request.
        revision: edits, undos and redos so far.
        by_hand: rows of kinds.csv that a person changed after it was written.
    """

    editor: Editor
    answers: dict[str, tuple[int, str]] = field(default_factory=dict)
    revision: int = 0
    by_hand: list[KindRow] = field(default_factory=list)

    def run(self, record: dict[str, Any]) -> str:
        """Apply an edit, undo or redo of the journal; return its text."""
        if "undo" in record:
            text = self.editor.undo()
        elif "redo" in record:
            text = self.editor.redo()
        else:
            text = self.editor.apply(read_edit(record["edit"]))
        self.revision += 1
        if "id" in record:
            self.answers[record["id"]] = (self.revision, text)
        return text


def record_of(edit: Edit) -> dict[str, Any]:
    """Return the journal's record of an edit."""
    return {"edit": edit.model_dump()}


def take_of(editor: Editor, rows: Sequence[KindRow]) -> Take:
    """Combine rows that were changed by hand into one edit."""
    place = {path: row for row, path in enumerate(editor.paths)}
    moved: dict[str, dict[str, list[int]]] = {}
    junk: list[int] = []
    restored: list[int] = []
    for row in rows:
        number = place[row.path]
        if editor.name_of(int(editor.kind[number])) != row.kind:
            moved.setdefault(row.coarse, {}).setdefault(row.kind, []).append(number)
        if editor.junk[number] != (row.role == "junk"):
            (junk if row.role == "junk" else restored).append(number)
    return Take(moved=moved, junk=junk, restored=restored)


def open_journal(folder: Path) -> Journal:
    """Open or begin the journal of kinds.npz; one of other kinds is set aside."""
    path, base = folder / EDITS, state_digest(folder)
    if path.exists():
        records, size, last_sum = read_records(path)
        if records and records[0].get("base") == base:
            if size < path.stat().st_size:
                with path.open("r+b", buffering=0) as file:
                    file.truncate(size)
                    sync_file(file)
            return Journal(path, size, last_sum)
        if records:
            path.replace(path.with_name(f"edits-{records[0]['base'][:SUM_DIGITS]}.jsonl"))
        else:  # a power loss came before its first line
            path.unlink()
    line, total = _line({"maskcon": "edits", "format": FORMAT, "base": base}, "")
    with path.open("xb", buffering=0) as file:
        write_all(file, line)
        sync_file(file)
    sync_folder(folder)
    return Journal(path, len(line), total)


def replay(folder: Path, kinds: Kinds, embedded: Embedded) -> Replay:
    """Rebuild the newest state of a folder of kinds.

    Args:
        kinds: as `read_folder` gives them.
        embedded: to place the centres of new kinds by; images that are gone do not matter.

    Raises:
        CorruptFileError: the journal is damaged.
        DataError: kinds.csv was edited and cannot be used; the message names the line.
    """
    editor = Editor(kinds, embedded)
    found = Replay(editor)
    records = _records(folder)
    # the last two: a kill may come between the journal line and the file
    files = [(record["csv"], record["revision"]) for record in records if "csv" in record]
    written = dict([("", 0), *files][-2:])
    states: dict[int, tuple[NDArray[np.int32], NDArray[np.bool_]]] = {}
    for record in [{}, *(record for record in records if "csv" not in record)]:
        if record:
            found.run(record)
        if found.revision in written.values():
            states[found.revision] = editor.kind.copy(), editor.junk.copy()
    content = (folder / CSV).read_bytes() if (folder / CSV).is_file() else b""
    if content and not _is_written(folder, content, written, kinds):
        rows = read_kinds(folder / CSV)
        check_edits(kinds, rows, folder / CSV)
        # it was made from the written state that it differs least from
        found.by_hand = min((_differing(editor, rows, *state) for state in states.values()), key=len)
    return found


def state_digest(folder: Path) -> str:
    """Return the checksum of kinds.npz."""
    with (folder / STATE).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _differing(
    editor: Editor, rows: Sequence[KindRow], kind: NDArray[np.int32], junk: NDArray[np.bool_]
) -> list[KindRow]:
    place = {path: row for row, path in enumerate(editor.paths)}
    names, flags = [editor.name_of(code) for code in kind.tolist()], junk.tolist()
    return [
        row
        for row in rows
        if names[place[row.path]] != row.kind or flags[place[row.path]] != (row.role == "junk")
    ]


def _is_written(folder: Path, content: bytes, written: Mapping[str, int], kinds: Kinds) -> bool:
    """Tell whether this kinds.csv is unedited: as written, or as before kinds.npz."""
    if (digest := hashlib.sha256(content).hexdigest()) in written:
        return True
    return "" in written and (content == kinds_bytes(kinds.rows) or digest == replaced_csv(folder))


def _records(folder: Path) -> list[dict[str, Any]]:
    """Return the journal's records since kinds.npz was written."""
    path = folder / EDITS
    if path.is_file():
        records, _, _ = read_records(path)
        if records and records[0].get("base") == state_digest(folder):
            return records[1:]
    return []


def read_records(path: Path) -> tuple[list[dict[str, Any]], int, str]:
    """Return the records, the bytes of complete lines, and the last sum."""
    try:
        check_regular(path)
        content = path.read_bytes()
    except OSError as error:
        raise MaskconError(f"cannot read {path}: {error.strerror or error}") from error
    records: list[dict[str, Any]] = []
    size, last_sum = 0, ""
    for number, line in enumerate(content.splitlines(keepends=True), start=1):
        is_cut = not line.endswith(b"\n")
        try:
            record = json.loads(line[:-1])
            total = record.pop("sum")
            same = _line(record, last_sum) == (line, total)
            is_cut &= _line(record, last_sum) != (line[:-1] + b"\n", total)  # else only its end is damaged
        except (ValueError, KeyError, AttributeError, RecursionError, TypeError):
            same = False
        if is_cut:
            break
        if not same:
            raise CorruptFileError(
                f"{path}, line {number}: does not match its checksum; delete it and the lines after it "
                "to keep the edits before it"
            )
        if not records and (record.get("maskcon"), record.get("format")) != ("edits", FORMAT):
            raise CorruptFileError(
                f"{path} was written by another version of maskcon; move it away to continue without these edits"
            )
        records.append(record)
        size, last_sum = size + len(line), total
    return records, size, last_sum


def _line(record: dict[str, Any], last_sum: str) -> tuple[bytes, str]:
    """Return the line of a record, and its sum."""
    text = json.dumps(record, separators=(",", ":"))
    total = hashlib.sha256((last_sum + text).encode()).hexdigest()[:SUM_DIGITS]
    return (json.dumps({**record, "sum": total}, separators=(",", ":")) + "\n").encode(), total

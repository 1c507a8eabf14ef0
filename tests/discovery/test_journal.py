"""The journal of edits: rebuilt after a kill, torn lines cut, damage told, edits by hand found."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from maskcon._utils.errors import CorruptFileError, MaskconError
from maskcon.data.kinds_file import kinds_bytes, read_kinds, write_kinds
from maskcon.discovery.edit_kinds import read_request
from maskcon.discovery.journal import EDITS, open_journal, record_of, replay, take_of
from maskcon.discovery.kinds import find_kinds
from maskcon.discovery.kinds_folder import CSV, Origin, read_folder, write_folder
from tests.discovery.generated import clustered, joined

EMBEDDED = joined(clustered((50, 40))[0], clustered((30,), coarse="pear")[0])
FOUND = find_kinds(EMBEDDED)
RENAME = {"action": "rename", "coarse": "apple", "kind": "kind 1", "to": "Gala"}
JUNK = {"action": "junk", "ids": [5, 100]}
SPLIT = {"action": "split", "coarse": "apple", "kind": "Gala", "parts": 3}


@pytest.fixture
def folder(tmp_path):
    write_folder(tmp_path, FOUND, Origin("abc", "photos"))
    return tmp_path


def rebuilt(folder):
    return replay(folder, read_folder(folder)[0], EMBEDDED)


def edited(folder, *edits):
    """Apply edits as a server does, in a journal that was there or is begun; return the state."""
    found, journal = rebuilt(folder), open_journal(folder)
    for values in edits:
        record = {"undo": True} if values == "undo" else record_of(found.editor.plan(read_request(values)))
        journal.append(record)
        found.run(record)
    return found


def rows(found):
    return found.editor.snapshot().rows()


def test_the_state_is_rebuilt_from_the_journal(folder):
    first = edited(folder, RENAME, JUNK, SPLIT)
    again = rebuilt(folder)
    assert rows(again) == rows(first)
    assert again.revision == 3
    second = edited(folder, "undo", "undo")
    assert rows(rebuilt(folder)) == rows(second)
    assert rebuilt(folder).editor.last_edit == "apple: renamed kind 1 to Gala (50 images)"
    assert rebuilt(folder).editor.can_redo
    edited(
        folder,
        {"action": "keep", "ids": [1], "queue": "ask"},
        {"action": "reject", "ids": [2], "kind": "Gala"},
    )
    assert rebuilt(folder).editor.known() == {1}
    assert rebuilt(folder).editor.rejected("Gala") == {2}


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_torn_last_line_is_cut_and_edits_go_on_after_it(folder, cut):
    edited(folder, RENAME, JUNK)
    path = folder / EDITS
    path.write_bytes(path.read_bytes()[:-cut])
    assert rebuilt(folder).revision == 1
    edited(folder, JUNK)
    assert rebuilt(folder).revision == 2
    assert path.read_bytes().endswith(b"\n")


def test_a_damaged_line_is_refused_with_its_number(folder):
    edited(folder, RENAME, JUNK)
    path = folder / EDITS
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        if whole[place : place + 1] == b"\n" or place >= len(whole) - 1:
            continue
        with pytest.raises(CorruptFileError, match=r"edits\.jsonl, line \d+: does not match|another version"):
            rebuilt(folder)
    path.write_bytes(b"".join(whole.splitlines(keepends=True)[i] for i in (0, 2)))  # a line is missing
    with pytest.raises(CorruptFileError, match="line 2"):
        rebuilt(folder)


def test_a_journal_of_other_kinds_is_set_aside(folder):
    edited(folder, RENAME)
    old = json.loads((folder / EDITS).read_text().splitlines()[0])["base"]
    write_folder(folder, rebuilt(folder).editor.kinds(), Origin("abc", "photos"))
    assert rebuilt(folder).revision == 0
    edited(folder, JUNK)
    assert rebuilt(folder).revision == 1
    assert (folder / f"edits-{old[:16]}.jsonl").is_file()


def test_a_full_disk_refuses_the_edit_and_keeps_the_others(folder, monkeypatch):
    first = rows(edited(folder, RENAME))
    before = (folder / EDITS).read_bytes()
    journal = open_journal(folder)

    def full(file, data):
        file.write(data[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("maskcon.discovery.journal.write_all", full)
    with pytest.raises(MaskconError, match=r"not saved: .*No space left"):
        journal.append({"undo": True})
    monkeypatch.undo()
    assert (folder / EDITS).read_bytes() == before
    journal.append({"undo": True})
    journal.append({"redo": True})
    assert rows(rebuilt(folder)) == first


def test_a_kinds_csv_that_is_behind_is_no_edit_by_hand(folder):
    found = edited(folder, RENAME, JUNK)
    assert rebuilt(folder).by_hand == []  # as kinds.npz was written
    content = kinds_bytes(rows(found))
    (folder / CSV).write_bytes(content)
    journal = open_journal(folder)
    import hashlib

    journal.append({"csv": hashlib.sha256(content).hexdigest(), "revision": 2})
    edited(folder, "undo")
    again = rebuilt(folder)
    assert again.by_hand == []
    assert again.revision == 3


def test_an_edit_by_hand_is_found_beside_edits_of_the_journal(folder):
    edited(folder, RENAME)
    changed = [replace(row, kind="Fuji") if row.path.endswith("00003.jpg") else row for row in FOUND.rows]
    write_kinds(
        folder / CSV, changed
    )  # from the file as it was first written: the server was killed before its own
    found = rebuilt(folder)
    assert {row.path for row in found.by_hand} == {"apple/00003.jpg", "pear/00003.jpg"}
    text = found.editor.apply(take_of(found.editor, found.by_hand))
    assert text == "took over kinds.csv: 2 images changed"
    assert found.editor.kinds_of("apple") == {"Gala": 49, "kind 2": 40, "Fuji": 1}
    found.editor.undo()
    assert found.editor.kinds_of("apple") == {"Gala": 50, "kind 2": 40}


def test_a_cleared_kind_is_taken_over(folder):
    write_kinds(
        folder / CSV, [replace(row, kind="") if row.path == "pear/00001.jpg" else row for row in FOUND.rows]
    )
    assert [row.kind for row in read_kinds(folder / CSV)].count("") == 1
    found = rebuilt(folder)
    found.editor.apply(take_of(found.editor, found.by_hand))
    assert found.editor.kinds_of("pear") == {"kind 1": 29}


def test_an_answer_is_known_again_by_its_id(folder):
    found, journal = rebuilt(folder), open_journal(folder)
    record = {**record_of(found.editor.plan(read_request(RENAME))), "id": "a1"}
    journal.append(record)
    found.run(record)
    assert rebuilt(folder).answers == {"a1": (1, "apple: renamed kind 1 to Gala (50 images)")}

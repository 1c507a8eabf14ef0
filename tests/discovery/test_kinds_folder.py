"""The folder of kinds: what is written is read back, kills and damage are noticed."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from maskcon._utils.errors import CorruptFileError, DataError
from maskcon.data.kinds_file import read_kinds, write_kinds
from maskcon.discovery.journal import replay
from maskcon.discovery.kinds import find_kinds
from maskcon.discovery.kinds_folder import (
    BACKUP,
    CSV,
    JSON,
    STATE,
    Origin,
    read_folder,
    write_folder,
)
from tests.discovery.generated import clustered, joined

EMBEDDED = joined(clustered((50, 40))[0], clustered((30,), coarse='=pear, "x"\n梨')[0])
FOUND = find_kinds(EMBEDDED)
ORIGIN = Origin("abc", "photos", {"apple": ("sheets/apple.png", "12")})


def by_hand(folder):
    return replay(folder, read_folder(folder)[0], EMBEDDED).by_hand


def test_kinds_are_read_back_as_written(tmp_path):
    assert read_folder(tmp_path) is None
    write_folder(tmp_path, FOUND, ORIGIN)
    kinds, origin = read_folder(tmp_path)
    assert (kinds.rows, kinds.spread, origin) == (FOUND.rows, FOUND.spread, ORIGIN)
    for name, group in FOUND.classes.items():
        again = kinds.classes[name]
        assert (again.kinds, again.suggestion, again.stability) == (
            group.kinds,
            group.suggestion,
            group.stability,
        )
        assert np.array_equal(again.centres, group.centres)
        assert np.array_equal(again.space.project(EMBEDDED.vectors), group.space.project(EMBEDDED.vectors))
    assert [replace(row, line=0) for row in read_kinds(tmp_path / CSV)] == list(FOUND.rows)


def test_the_same_kinds_are_written_as_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_folder(tmp_path / name, find_kinds(EMBEDDED), ORIGIN)
    for file in (CSV, JSON, STATE):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_json_holds_numbers_curve_sizes_and_stability(tmp_path):
    write_folder(tmp_path, FOUND, ORIGIN)
    record = json.loads((tmp_path / JSON).read_text("utf-8"))
    pear, apple = record["classes"]
    assert (apple["coarser"], apple["suggested"]) == (1, 2)
    assert apple["finer"] > 2
    assert apple["curve"][0]["kinds"] == 2
    assert [kind["size"] for kind in apple["kinds"]] == [50, 40]
    assert apple["kinds"][0]["confused_with"] == "kind 2"
    assert (apple["sheet"], pear["sheet"]) == ("sheets/apple.png", None)
    assert pear["stability"] is None
    assert record["criterion"]["usual_price"] == apple["price"] == 13


def test_an_edited_csv_is_an_edit_and_the_one_before_a_kill_is_not(tmp_path):
    write_folder(tmp_path, FOUND, ORIGIN)
    assert by_hand(tmp_path) == []
    edited = [replace(row, kind="Gala") for row in FOUND.rows]
    write_kinds(tmp_path / CSV, edited)
    assert [row.kind for row in by_hand(tmp_path)] == ["Gala"] * len(FOUND.rows)
    before = (tmp_path / CSV).read_bytes()
    write_folder(tmp_path, replace(FOUND, rows=FOUND.rows[5:]), ORIGIN, keep_backup=True)
    assert (tmp_path / BACKUP).read_bytes() == before
    (tmp_path / CSV).write_bytes(before)  # as if killed before the csv was replaced
    assert by_hand(tmp_path) == []
    (tmp_path / CSV).unlink()
    assert by_hand(tmp_path) == []


def test_a_damaged_csv_is_refused_by_line(tmp_path):
    write_folder(tmp_path, FOUND, ORIGIN)
    (tmp_path / CSV).write_text("path,coarse,kind\na.jpg,apple,x\na.jpg,apple,y\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"line 3: a\.jpg is in line 2 already"):
        by_hand(tmp_path)


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 cut"])
def test_a_damaged_state_is_refused(tmp_path, content):
    (tmp_path / STATE).write_bytes(content)
    with pytest.raises(CorruptFileError, match="delete it to find kinds anew"):
        read_folder(tmp_path)
    write_folder(tmp_path, FOUND, ORIGIN)
    whole = (tmp_path / STATE).read_bytes()
    (tmp_path / STATE).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CorruptFileError):
        read_folder(tmp_path)

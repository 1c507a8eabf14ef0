"""Edits of kinds.csv: checked, listed, taken over."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from maskcon._utils.errors import DataError
from maskcon.data.kinds_file import KindRow
from maskcon.discovery.edits import apply_edits, changes_by_class, check_edits, list_changes
from maskcon.discovery.kinds import find_kinds
from maskcon.discovery.revision import add_images
from tests.discovery.generated import clustered, joined, some

EMBEDDED = joined(clustered((50, 40, 30), seed=1)[0], clustered((30, 25), seed=2, coarse="pear")[0])
FOUND = find_kinds(EMBEDDED)
APPLES = ["kind 1"] * 50 + ["kind 2"] * 40 + ["kind 3"] * 30


def edited(change) -> list[KindRow]:
    return [change(row) for row in FOUND.rows]


def taken_over(change):
    rows = edited(change)
    check_edits(FOUND, rows, Path("kinds.csv"))
    return add_images(apply_edits(FOUND, rows, EMBEDDED), EMBEDDED)


def told(after) -> list[str]:
    return [str(change) for change in list_changes(FOUND.rows, after.rows)]


def named(names: dict[str, str]):
    return lambda row: replace(row, kind=names.get(row.kind, row.kind)) if row.coarse == "apple" else row


def test_generated_kinds_are_as_the_tests_take_them():
    assert [row.kind for row in FOUND.rows if row.coarse == "apple"] == APPLES


def test_renamed_kinds_keep_images_and_centres():
    after = taken_over(named({"kind 1": "Gala", "kind 2": 'Café, "reine" 苹果'}))
    assert told(after) == [
        "apple: renamed kind 1 to Gala (50 images)",
        'apple: renamed kind 2 to Café, "reine" 苹果 (40 images)',
    ]
    assert after.classes["apple"].kinds == ("Gala", 'Café, "reine" 苹果', "kind 3")
    assert [row.confidence for row in after.rows] == [row.confidence for row in FOUND.rows]
    assert [row.kind for row in add_images(after, EMBEDDED).rows] == [row.kind for row in after.rows]


def test_swapped_names_are_two_renamings():
    after = taken_over(named({"kind 1": "kind 2", "kind 2": "kind 1"}))
    assert after.classes["apple"].kinds == ("kind 2", "kind 1", "kind 3")
    assert [row.confidence for row in after.rows] == [row.confidence for row in FOUND.rows]


def test_merged_kinds_share_a_name_and_attract_images_of_both():
    after = taken_over(named({"kind 2": "Green", "kind 3": "Green"}))
    assert told(after) == ["apple: merged kind 2 and kind 3 into Green (70 images)"]
    assert after.classes["apple"].kinds == ("kind 1", "Green", "Green")
    into = taken_over(named({"kind 2": "kind 1"}))
    assert told(into) == ["apple: merged kind 2 into kind 1 (40 images)"]
    fewer = some(EMBEDDED, np.r_[0:45, 50:85, 90:175])
    rows = FOUND.known()
    smaller = replace(FOUND, rows=tuple(rows[path] for path in fewer.paths))
    merged = apply_edits(smaller, [named({"kind 2": "kind 1"})(row) for row in smaller.rows], fewer)
    assert {row.kind for row in add_images(merged, EMBEDDED).rows[:90]} == {"kind 1"}


def test_moved_images_stay_where_they_were_put():
    def move(row):
        return replace(row, kind="kind 3") if row.path in EMBEDDED.paths[:2] else row

    after = taken_over(move)
    assert told(after) == ["apple: moved 2 images from kind 1 to kind 3"]
    assert [row.kind for row in after.rows[:3]] == ["kind 3", "kind 3", "kind 1"]
    assert after.rows[0].confidence == 0  # nearer to the kind that it was taken from


def test_images_moved_to_a_new_name_get_a_centre():
    def move(row):
        return replace(row, kind="Gala") if row.path in EMBEDDED.paths[:20] else row

    after = taken_over(move)
    assert after.classes["apple"].kinds == ("kind 1", "kind 2", "kind 3", "Gala")
    expected = FOUND.classes["apple"].space.project(EMBEDDED.vectors[:20]).mean(0)
    np.testing.assert_allclose(after.classes["apple"].centres[3], expected, rtol=1e-5)


def test_junk_is_kept_and_restored():
    after = taken_over(lambda row: replace(row, role="junk") if row.path == EMBEDDED.paths[0] else row)
    assert told(after) == ["apple: marked 1 image as junk"]
    assert after.rows[0].role == "junk"
    back = apply_edits(after, [replace(row, role="") for row in after.rows], EMBEDDED)
    again = add_images(back, EMBEDDED)
    assert [str(change) for change in list_changes(after.rows, again.rows)] == [
        "apple: restored 1 image from junk"
    ]
    assert again.rows == FOUND.rows


def test_emptied_kinds_and_missing_rows():
    after = taken_over(lambda row: replace(row, kind="") if row.path == EMBEDDED.paths[0] else row)
    assert (after.rows[0].kind, after.rows[0].confidence, after.rows[0].role) == ("", None, "")
    assert told(after) == ["apple: moved 1 image from kind 1 to no kind"]
    kept = add_images(apply_edits(FOUND, FOUND.rows[5:], EMBEDDED), EMBEDDED)
    assert kept.rows == FOUND.rows
    none = taken_over(lambda row: replace(row, kind=""))
    assert {row.kind for row in none.rows} == {""}


def test_added_and_removed_images_are_told():
    before = replace(FOUND, rows=FOUND.rows[3:])
    changes = [str(change) for change in list_changes(before.rows, FOUND.rows[:-2])]
    assert changes == ["apple: added 3 images to kind 1", "pear: removed 2 images"]


def test_kinds_found_anew_are_summarised_in_one_line_per_class():
    after = taken_over(named({"kind 2": "kind 1"}))
    assert changes_by_class(FOUND.rows, after.rows) == [
        "apple: 3 kinds before, 2 now; 40 of 120 images changed kind"
    ]
    assert changes_by_class(FOUND.rows, FOUND.rows) == []


def test_names_that_are_lost_when_kinds_are_found_anew_are_listed():
    before = taken_over(named({"kind 1": "Granny", "kind 2": "Gala", "kind 3": "Boskoop"}))
    after = taken_over(named({"kind 1": "Granny"}))
    lost = "apple: names no longer used: Boskoop, Gala"
    assert changes_by_class(before.rows, after.rows)[1:] == [lost]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (KindRow("other.jpg", "apple", "x", line=7), "kinds.csv, line 7: other.jpg is not among the images"),
        (
            KindRow(EMBEDDED.paths[0], "pear", "x", line=9),
            "line 9: .* has the coarse label 'apple', not 'pear'",
        ),
    ],
)
def test_rows_that_do_not_fit_are_refused_by_line(row, message):
    with pytest.raises(DataError, match=message):
        check_edits(FOUND, [row], Path("kinds.csv"))

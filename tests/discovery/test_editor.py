"""Single edits: what they change, that they can be taken back, and that they agree with an edited kinds.csv."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from maskcon._utils.errors import UsageError
from maskcon.discovery.columns import GoneError
from maskcon.discovery.edit_kinds import read_request
from maskcon.discovery.editor import Editor
from maskcon.discovery.edits import apply_edits
from maskcon.discovery.kinds import find_kinds
from maskcon.discovery.revision import add_images
from tests.discovery.generated import clustered, joined

EMBEDDED = joined(clustered((50, 40, 30))[0], clustered((30, 25), coarse="pear", seed=1)[0])
FOUND = find_kinds(EMBEDDED)


@pytest.fixture
def editor():
    return Editor(FOUND, EMBEDDED)


def edit(editor, **values):
    return editor.apply(editor.plan(read_request(values)))


def state(editor):
    """Everything that an edit may change."""
    kinds = editor.kinds()
    centres = [(group.kinds, group.centres.tolist()) for group in kinds.classes.values()]
    return kinds.rows, centres


EDITS = [
    (
        {"action": "rename", "coarse": "apple", "kind": "kind 1", "to": "Gala"},
        "renamed kind 1 to Gala (50 images)",
    ),
    (
        {"action": "rename", "coarse": "apple", "kind": "kind 2", "to": "Gala"},
        "merged kind 2 into Gala (40 images)",
    ),
    ({"action": "move", "ids": [0, 1, 2], "to": "Fuji"}, "moved 3 images from Gala to Fuji"),
    ({"action": "junk", "ids": [3, 4, 121]}, "marked 2 images as junk; pear: marked 1 image as junk"),
    ({"action": "split", "coarse": "apple", "kind": "Gala", "parts": 2}, "split Gala into"),
    ({"action": "restore", "ids": [4]}, "restored 1 image from junk"),
    ({"action": "merge", "coarse": "pear", "kinds": ["kind 1", "kind 2"], "to": "pear"}, "into pear"),
]


def test_each_edit_says_what_it_did_and_undo_takes_back_exactly_that(editor):
    states = [state(editor)]
    for values, text in EDITS:
        assert text in edit(editor, **values)
        states.append(state(editor))
    for expected in reversed(states[:-1]):
        editor.undo()
        rows, centres = state(editor)
        assert [(row.kind, row.role) for row in rows] == [(row.kind, row.role) for row in expected[0]]
        assert centres == expected[1]
    with pytest.raises(GoneError, match="nothing to undo"):
        editor.undo()
    for expected in states[1:]:
        editor.redo()
        assert state(editor) == expected
    assert not editor.can_redo


def test_what_a_person_kept_or_rejected_is_known_until_undone(editor):
    before = state(editor)
    assert edit(editor, action="keep", ids=[3, 5], queue="ask") == "kept 2 images in kind 1"
    assert edit(editor, action="keep", ids=[60, 130], queue="mislabelled") == "kept 2 images"
    assert edit(editor, action="reject", ids=[95, 96], kind="Gala") == "2 images not in Gala"
    assert state(editor) == before
    assert editor.known() == {3, 5}
    assert editor.kept("mislabelled") == {60, 130}
    assert editor.rejected("Gala") == {95, 96}
    assert not editor.rejected("kind 1")
    edit(editor, action="move", ids=[7], to="Fuji")
    edit(editor, action="junk", ids=[5])
    assert editor.kinds().answered == {EMBEDDED.paths[3], EMBEDDED.paths[7]}  # as `maskcon ask` knows them
    for _ in range(5):
        editor.undo()
    assert (editor.known(), editor.kept("mislabelled"), editor.rejected("Gala")) == (set(), set(), set())
    editor.redo()
    assert editor.known() == {3, 5}


def test_an_edit_after_undo_ends_redo(editor):
    edit(editor, **EDITS[0][0])
    editor.undo()
    assert editor.can_redo
    edit(editor, **EDITS[3][0])
    assert not editor.can_redo


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_edits_give_what_the_same_kinds_csv_would(editor, count):
    for values, _ in EDITS[:count]:
        edit(editor, **values)
    found = editor.kinds()
    expected = FOUND
    rows = [replace(row, confidence=None) for row in found.rows]
    expected = add_images(apply_edits(FOUND, rows, EMBEDDED), EMBEDDED)
    assert [(row.path, row.kind, row.role == "junk") for row in found.rows] == [
        (row.path, row.kind, row.role == "junk") for row in expected.rows
    ]
    if count == 1:  # later, one edit of all places the centres elsewhere than several
        assert found.rows == expected.rows
    again = add_images(found, EMBEDDED)  # and `maskcon kinds` changes nothing more
    assert again.rows == found.rows


def test_parts_of_a_split_are_sure_of_themselves(editor):
    edit(editor, action="rename", coarse="apple", kind="kind 2", to="kind 1")
    edit(editor, action="split", coarse="apple", kind="kind 1")
    sizes = editor.kinds_of("apple")
    assert sorted(sizes.values()) == [30, 40, 50]
    assert len(sizes) == 3
    confidence, _ = editor.judged()
    assert np.nanmin(confidence[:120]) > 0.3


@pytest.mark.parametrize(
    ("values", "error", "text"),
    [
        (
            {"action": "rename", "coarse": "plum", "kind": "kind 1", "to": "x"},
            GoneError,
            "no coarse class 'plum'",
        ),
        ({"action": "rename", "coarse": "apple", "kind": "kind 9", "to": "x"}, GoneError, "no kind 'kind 9'"),
        ({"action": "rename", "coarse": "apple", "kind": "kind 1", "to": "kind 1"}, GoneError, "already"),
        ({"action": "rename", "coarse": "apple", "kind": "kind 1", "to": " "}, UsageError, "empty"),
        ({"action": "rename", "coarse": "apple", "kind": "kind 1", "to": "a\nb"}, UsageError, "line break"),
        (
            {"action": "rename", "coarse": "apple", "kind": "kind 1", "to": "x" * 201},
            UsageError,
            "at most 200",
        ),
        ({"action": "move", "ids": [0, 130], "to": "x"}, UsageError, "apple and pear"),
        ({"action": "move", "ids": [175], "to": "x"}, UsageError, "no image 175; the last is 174"),
        ({"action": "move", "ids": [], "to": "x"}, UsageError, "ids"),
        ({"action": "move", "ids": [True], "to": "x"}, UsageError, "ids"),
        ({"action": "split", "coarse": "apple", "kind": "kind 1", "parts": 1}, UsageError, "parts"),
        ({"action": "split", "coarse": "apple", "kind": "kind 1", "parts": 20, "x": 1}, UsageError, "x"),
        ({"action": "keep", "ids": [175], "queue": "ask"}, UsageError, "no image 175"),
        ({"action": "keep", "ids": [1], "queue": "x"}, UsageError, "queue"),
        ({"action": "reject", "ids": [175], "kind": "x"}, UsageError, "no image 175"),
        ({"action": "restore", "ids": [0]}, GoneError, "none of these images is junk"),
        ({"action": "parts", "coarse": "apple", "kind": "kind 1", "new": {"x": [0]}}, UsageError, "action"),
        ({"action": "take", "junk": [0]}, UsageError, "action"),
        ({}, UsageError, "action"),
    ],
)
def test_what_cannot_be_done_is_refused_and_changes_nothing(editor, values, error, text):
    before = state(editor)
    with pytest.raises(error, match=text) as caught:
        edit(editor, **values)
    assert type(caught.value) is error
    assert state(editor) == before
    assert editor.last_edit is None

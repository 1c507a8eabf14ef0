"""A kinds file matched to the training images."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from maskcon._utils.errors import DataError
from maskcon.data import Dataset
from maskcon.data.kinds_file import KindRow, write_kinds
from maskcon.data.known_names import JUNK, NUMBERED, UNNAMED, known_names
from tests.miniature import miniature, with_paths

DATA = with_paths(miniature(12, 8))  # coarse labels 0 0 1 1 0 0 1 1 ...
COARSE = ("stripes", "checks")


def row(number: int, kind: str, *, part: str = "train", coarse: str | None = None, role: str = "") -> KindRow:
    label = coarse or COARSE[int(DATA.train.coarse[number])]
    return KindRow(f"{part}/{number}.png", label, kind, role=role)


def names_of(tmp_path: Path, *rows: KindRow, data: Dataset = DATA):
    write_kinds(tmp_path / "kinds.csv", rows)
    return known_names(tmp_path / "kinds.csv", data)


def test_names_are_numbered_by_their_first_training_image(tmp_path):
    names = names_of(
        tmp_path, row(5, "thin"), row(4, "thick"), row(2, "grid"), row(0, "thin"), row(1, "kind 2")
    )
    expected = np.full(12, UNNAMED)
    expected[[0, 1, 2, 4, 5]] = 0, NUMBERED, 1, 2, 0
    assert names.kinds.dtype == np.int64
    assert names.kinds.tolist() == expected.tolist()
    assert (names.images, names.count) == (4, 3)
    assert names.notes == (f"{tmp_path / 'kinds.csv'}: 3 kinds named, in 4 training images",)


def test_the_same_name_under_two_coarse_classes_is_two_kinds(tmp_path):
    names = names_of(tmp_path, row(0, "thin"), row(2, "thin"))
    assert names.kinds[0] != names.kinds[2]


def test_junk_is_marked_and_needs_no_name(tmp_path):
    names = names_of(tmp_path, row(0, "thin"), row(1, "", role="junk"), row(4, "thin", role="junk"))
    assert names.kinds[:5].tolist() == [0, JUNK, UNNAMED, UNNAMED, JUNK]
    assert names.notes[0].endswith("1 kind named, in 1 training image; 2 junk images left out")


def test_rows_without_effect_are_counted_in_one_message_each(tmp_path):
    names = names_of(
        tmp_path,
        row(0, "thin"),
        row(1, "thin", coarse="checks"),
        row(0, "thin", part="test"),
        row(1, "thick", part="test"),
        row(0, "thin", part="lost"),
        row(1, "thin", part="lost"),
        row(2, "kind 1", part="lost"),  # says nothing, so nothing is lost
    )
    assert [note.partition("kinds.csv: ")[2] for note in names.notes] == [
        "1 kind named, in 1 training image",
        "1 row with another coarse class than the image, the first in line 3: "
        "train/1.png is 'stripes', not 'checks'",
        "2 rows of test images, which are not trained on, the first in line 4: test/0.png",
        "2 rows without an image in miniature, the first in line 6: lost/0.png",
    ]


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([row(0, "kind 1"), row(1, "")], "every kind is a number or empty"),
        (
            [row(0, "thin", part="lost")],
            "1 row without an image in miniature, the first in line 2: lost/0.png",
        ),
        ([row(0, "thin", part="test")], "1 row of test images"),
        ([row(0, "thin", coarse="dots")], "train/0.png is 'stripes', not 'dots'"),
        ([row(0, "thin", role="junk")], "every kind is a number or empty, or junk"),
    ],
)
def test_a_file_that_names_no_training_image_is_refused(tmp_path, rows, why):
    with pytest.raises(DataError, match="names no training image of miniature: ") as refused:
        names_of(tmp_path, *rows)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


def test_junk_that_leaves_too_few_images_is_refused(tmp_path):
    rows = [
        row(number, "thin" if number < 3 else "", role="" if number < 3 else "junk") for number in range(12)
    ]
    with pytest.raises(DataError, match="leaves 3 of 12 training images"):
        names_of(tmp_path, *rows)


def test_images_without_paths_are_named_by_their_number_which_a_subset_keeps(tmp_path):
    data = miniature(12, 8)
    part = replace(data, train=data.train.subset([1, 3, 4, 5, 6, 8, 9]))
    rows = [KindRow(f"train/{number}", COARSE[int(data.train.coarse[number])], "thin") for number in (3, 4)]
    names = names_of(tmp_path, *rows, KindRow(data.image_names[1][3], COARSE[1], "grid"), data=part)
    assert np.flatnonzero(names.kinds >= 0).tolist() == [1, 2]
    assert "1 row of test images, which are not trained on" in names.notes[1]


def test_accents_spelt_in_two_ways_are_one_name(tmp_path):
    names = names_of(tmp_path, row(0, "caf\u00e9"), row(1, "cafe\u0301"))
    assert names.kinds[:2].tolist() == [0, 0]


def test_paths_that_cannot_be_printed_are_found_as_they_are_shown(tmp_path):
    odd = os.fsdecode(b"caf\xe9.png")
    data = replace(DATA, train=replace(DATA.train, paths=(odd, *DATA.train.paths[1:])))
    names = names_of(tmp_path, KindRow("caf\\xe9.png", "stripes", "thin"), data=data)
    assert names.kinds[0] == 0


def test_fingerprint_depends_on_shared_names_and_not_on_spelling(tmp_path):
    first = names_of(tmp_path, row(0, "thin"), row(1, "thick")).fingerprint()
    assert names_of(tmp_path, row(1, "b"), row(0, "a")).fingerprint() == first
    assert names_of(tmp_path, row(0, "thin"), row(1, "thin")).fingerprint() != first
    assert names_of(tmp_path, row(0, "thin"), row(4, "thick")).fingerprint() != first

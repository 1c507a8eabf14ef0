from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from maskcon.data.builtin.classes import read_table
from maskcon.data.builtin.imagenet32 import FILE_LABELS, GROUPING

PUBLISHED_COUNTS = [61, 123, 59, 95, 60, 130, 70, 53, 105, 71, 93, 80]
REPOSITORY = Path(__file__).parents[2]
WORDNET = Path("/usr/share/wordnet/data.noun")


def test_coarse_classes_have_the_published_counts() -> None:
    assert list(GROUPING.sizes) == PUBLISHED_COUNTS


def test_file_labels_are_a_permutation_and_wnids_are_sorted() -> None:
    assert sorted(FILE_LABELS) == list(range(1, 1001))
    wnids = [row["wnid"] for row in read_table("imagenet32")]
    assert wnids == sorted(set(wnids))
    assert len(set(GROUPING.fine_names)) == 1000


@pytest.mark.parametrize(
    ("file_label", "place", "wnid", "name"),
    [
        (1, 278, "n02119789", "kit fox"),
        (2, 212, "n02100735", "English setter"),
        (449, 0, "n01440764", "tench"),
        (429, 134, "n02012849", "crane (wading bird)"),
        (545, 517, "n03126707", "crane (lifting device)"),
        (889, 999, "n15075141", "toilet tissue"),
        (1000, 543, "n03255030", "dumbbell"),
    ],
)
def test_labels_of_the_files_follow_their_own_order(
    file_label: int, place: int, wnid: str, name: str
) -> None:
    row = read_table("imagenet32")[place]
    assert (row["wnid"], FILE_LABELS[place], GROUPING.fine_names[place]) == (wnid, file_label, name)


@pytest.mark.parametrize(
    ("wnid", "coarse"),
    [
        ("n02939185", "instrument"),  # caldron
        ("n03063689", "instrument"),  # coffeepot
        ("n04398044", "instrument"),  # teapot
        ("n04266014", "instrument"),  # space shuttle
        ("n03938244", "clothing"),  # pillow
        ("n02704792", "vehicle"),  # the amphibian with wheels
        ("n01641577", "reptile/aquatic vertebrate"),  # bullfrog
        ("n03207941", "artifact"),  # dishwasher
        ("n04179913", "device"),  # sewing machine
        ("n02123045", "domestic animal"),  # tabby
        ("n02129604", "mammal"),  # tiger
        ("n07747607", "others"),  # orange
    ],
)
def test_exceptions_and_edges_of_the_rule(wnid: str, coarse: str) -> None:
    assert [row["coarse_name"] for row in read_table("imagenet32") if row["wnid"] == wnid] == [coarse]


@pytest.mark.skipif(not WORDNET.is_file(), reason="needs Debian's wordnet-base")
def test_the_rule_gives_the_table_in_the_package() -> None:
    command = [sys.executable, "scripts/build_imagenet_groups.py", "--noun", str(WORDNET), "--check"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src")}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "device 130" in done.stdout

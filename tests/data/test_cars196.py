from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maskcon._utils.errors import DataError, UsageError
from maskcon.data import packing
from maskcon.data.builtin.cars196 import CLASS_OF_KEY, COARSE_NAMES, FINE_NAMES, grouping, missing
from maskcon.data.dataset import Variant
from tests.data.miniature_photos import load_cars196, write_cars_folders


def coarse_of(variant: Variant = "paper") -> tuple[int, ...]:
    return grouping(variant).coarse_of


LABELS = {"train": [1, 4, 4, 116, 174, 196], "test": [4, 174, 196]}

# the grouping in the authors' code: the coarse class of each of the 196 class numbers
PUBLISHED_GROUPING = (
    "2111145343434441165134114134163224132331144134121212003332321217041200741002371336667007200642211553"
    "433410372204001712722030077415222111115142232222244342213324314117157544173115341151121125555123"
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "maskcon" / "packed"


def test_body_types_have_the_papers_counts() -> None:
    counts = Counter(coarse_of("paper"))
    assert [counts[place] for place in range(8)] == [18, 50, 36, 30, 29, 14, 7, 12]
    assert len(coarse_of("paper")) == len(set(FINE_NAMES)) == len(CLASS_OF_KEY) == 196


def test_table_has_the_published_grouping_of_every_model() -> None:
    assert "".join(str(coarse) for coarse in coarse_of("reference")) == PUBLISHED_GROUPING
    differing = [
        name
        for name, ours, theirs in zip(FINE_NAMES, coarse_of("paper"), coarse_of("reference"), strict=True)
        if ours != theirs
    ]
    assert differing == ["Ford E-Series Wagon Van 2012"]


def test_name_of_a_model_agrees_with_its_body_type() -> None:
    words = {name: name for name in COARSE_NAMES} | {"SuperCab": "Cab", "Minivan": "Van"}
    unnamed = 0
    for name, coarse in zip(FINE_NAMES, coarse_of("reference"), strict=True):
        named = [words[word] for word in name.split() if word in words]
        unnamed += not named
        assert not named or named[-1] == COARSE_NAMES[coarse], name
    assert unnamed == 14


def check_labels(data: Any, train: list[int], test: list[int]) -> None:
    for part, labels in ((data.train, train), (data.test, test)):
        assert (part.fine + 1).tolist() == labels
        assert part.coarse.tolist() == [coarse_of()[label - 1] for label in labels]
    assert data.family == "cars"
    assert data.coarse_names == COARSE_NAMES
    assert data.fine_names == FINE_NAMES


@pytest.mark.parametrize("base", ["", "cars196", "stanford_cars"])
@pytest.mark.parametrize("inner", ["", "car_data", "car_data/car_data"])
def test_one_folder_per_model_is_read_whatever_the_spelling(tmp_path: Path, base: str, inner: str) -> None:
    folder = tmp_path / base / inner
    write_cars_folders(folder, {"train": [1, 39, 174, 196], "test": [174, 196]})
    (folder / "train" / FINE_NAMES[38]).rename(
        folder / "train" / "bentley_continental_supersports_conv_convertible_2012"
    )
    (folder / "train" / "notes.txt").write_text("x")
    assert missing(tmp_path) == ()
    data = load_cars196(tmp_path, image_size=32)
    assert sorted((data.train.fine + 1).tolist()) == [1, 39, 174, 196]  # type: ignore[operator]
    check_labels(data, (data.train.fine + 1).tolist(), [174, 196])  # type: ignore[operator]
    assert any("192 models without" in note for note in data.notes)
    assert any("1 other file " in note for note in data.notes)


def test_unknown_model_folder_is_named_with_the_nearest(tmp_path: Path) -> None:
    write_cars_folders(tmp_path / "cars196", {"train": [1, 2], "test": [1, 2]})
    (tmp_path / "cars196" / "train" / FINE_NAMES[1]).rename(
        tmp_path / "cars196" / "train" / "Acura RL Sedan 2013"
    )
    with pytest.raises(
        DataError, match=r"'Acura RL Sedan 2013' is none of the 196.*mean 'Acura RL Sedan 2012'"
    ):
        load_cars196(tmp_path)


def test_two_folders_of_one_model_are_refused(tmp_path: Path) -> None:
    write_cars_folders(tmp_path / "cars196", {"train": [1, 2], "test": [1, 2]})
    train = tmp_path / "cars196" / "train"
    shutil.copytree(train / FINE_NAMES[1], train / "acura_rl_sedan_2012")
    with pytest.raises(DataError, match=r"'Acura RL Sedan 2012' and 'acura_rl_sedan_2012' are one model"):
        load_cars196(tmp_path, image_size=32)


def test_part_of_empty_folders_is_an_error_that_blames_no_image(tmp_path: Path) -> None:
    write_cars_folders(tmp_path / "cars196", {"train": [1, 2], "test": [1]})
    next((tmp_path / "cars196" / "test").rglob("*.jpg")).unlink()
    with pytest.raises(DataError, match=r"image of the test part; all 2 listed are of the other$"):
        load_cars196(tmp_path, image_size=32)


def test_variant_moves_one_model(tmp_path: Path) -> None:
    write_cars_folders(tmp_path, LABELS)
    paper, reference = (
        load_cars196(tmp_path, variant=variant, image_size=32) for variant in ("paper", "reference")
    )
    assert paper.coarse_of_fine == coarse_of("paper")
    assert reference.coarse_of_fine == coarse_of("reference")
    assert (paper.train.coarse != reference.train.coarse).tolist() == [
        label == 116 for label in LABELS["train"]
    ]
    assert any("Ford E-Series" in note for note in reference.notes)
    assert not any("Ford E-Series" in note for note in paper.notes)


def test_nothing_at_all_says_where_to_get_it_and_where_to_put_it(tmp_path: Path) -> None:
    (line,) = missing(tmp_path)
    assert "kaggle.com" in line
    assert str(tmp_path / "cars196") in line
    with pytest.raises(DataError, match=r"not found in .*cars196; the first address .* copies"):
        load_cars196(tmp_path)
    with pytest.raises(DataError, match="cannot be downloaded"):
        load_cars196(tmp_path, download=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["train", "test"])
def test_partial_set_names_what_is_lacking(tmp_path: Path, name: str) -> None:
    write_cars_folders(tmp_path / "stanford_cars", LABELS)
    shutil.rmtree(tmp_path / "stanford_cars" / name)
    assert missing(tmp_path) == (f"{name} in {tmp_path / 'stanford_cars'}",)
    with pytest.raises(DataError, match=f"not complete: {name} not found"):
        load_cars196(tmp_path)


def test_train_and_test_folders_of_another_set_are_not_taken_for_cars(tmp_path: Path) -> None:
    for part in ("train", "test"):
        (tmp_path / part / "daisy").mkdir(parents=True)
    assert len(missing(tmp_path)) == 1
    with pytest.raises(DataError, match="was not found"):
        load_cars196(tmp_path)


def test_unreadable_images_are_left_out_with_a_note(tmp_path: Path) -> None:
    write_cars_folders(tmp_path, LABELS)
    damaged = tmp_path / "train" / FINE_NAMES[3] / "00002.jpg"
    damaged.write_bytes(b"no image")
    data = load_cars196(tmp_path, image_size=32)
    check_labels(data, [1, 4, 116, 174, 196], LABELS["test"])
    assert data.train.paths is not None
    assert damaged.relative_to(tmp_path).as_posix() not in data.train.paths
    assert "1 image could not be read" in data.notes[-1]
    assert "00002.jpg (not an image of a known format)" in data.notes[-1]


def test_part_without_a_readable_image_is_an_error(tmp_path: Path) -> None:
    write_cars_folders(tmp_path, LABELS)
    for path in (tmp_path / "test").rglob("*.jpg"):
        path.write_bytes(b"no image")
    with pytest.raises(DataError, match=r"no readable image of the test part; 3 of 9.*00000.jpg"):
        load_cars196(tmp_path)


def test_ids_do_not_depend_on_the_spelling_of_a_model(tmp_path: Path) -> None:
    for name in "ab":
        write_cars_folders(tmp_path / name, LABELS)
    models = tmp_path / "b" / "train"
    (models / FINE_NAMES[3]).rename(models / FINE_NAMES[3].replace(" ", "-"))
    first, second = (load_cars196(tmp_path / name, image_size=32) for name in "ab")
    assert first.fingerprint() == second.fingerprint()


def test_large_set_is_packed_once_and_the_same(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cars_folders(tmp_path, LABELS)
    in_memory = load_cars196(tmp_path, image_size=32)
    assert not own_cache.exists()
    monkeypatch.setattr(packing, "PACK_ABOVE_BYTES", 1000)
    packed = load_cars196(tmp_path, image_size=32)
    assert isinstance(packed.train.images, np.memmap)
    assert packed.fingerprint() == in_memory.fingerprint()


def test_image_size_out_of_range_is_refused(tmp_path: Path) -> None:
    write_cars_folders(tmp_path, LABELS)
    with pytest.raises(UsageError, match="image size"):
        load_cars196(tmp_path, image_size=4)


def test_progress_counts_all_images(tmp_path: Path) -> None:
    write_cars_folders(tmp_path, LABELS)
    calls: list[tuple[int, int | None]] = []
    load_cars196(tmp_path, image_size=32, progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (9, 9)

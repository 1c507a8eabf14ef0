from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from maskcon._utils.errors import CorruptFileError, DataError, UsageError
from maskcon.data import packing
from maskcon.data.builtin.cars196 import CLASS_OF_KEY, COARSE_NAMES, FINE_NAMES, grouping, missing
from maskcon.data.dataset import Variant
from tests.data.miniature_photos import (
    BOX,
    cell_array,
    load_cars196,
    save_mat,
    struct_array,
    write_cars_folders,
    write_cars_pair,
    write_cars_whole,
)


def coarse_of(variant: Variant = "paper") -> tuple[int, ...]:
    return grouping(variant).coarse_of


LABELS = {"train": [1, 4, 116, 174, 196, 4], "test": [4, 174, 196]}

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
@pytest.mark.parametrize("nested", [False, True])
def test_first_edition_is_read_from_its_annotations(tmp_path: Path, base: str, nested: bool) -> None:
    write_cars_pair(tmp_path / base, LABELS, nested=nested)
    assert missing(tmp_path) == ()
    data = load_cars196(tmp_path, image_size=32)
    check_labels(data, LABELS["train"], LABELS["test"])
    assert data.train.images.shape == (6, 3, 32, 32)
    assert data.train.sizes is not None
    assert data.train.sizes[0].tolist() == [16, 24]
    assert data.train.paths is not None
    with Image.open(tmp_path / base / data.train.paths[2]) as image:
        whole = np.asarray(image).transpose(2, 0, 1)
    assert np.array_equal(data.train.images[2, :, :16, :24], whole)  # not cut to the box
    assert "8144 + 8041" in data.notes[0]


def test_ids_do_not_depend_on_how_deep_the_pictures_lie(tmp_path: Path) -> None:
    write_cars_pair(tmp_path / "a", LABELS)
    write_cars_pair(tmp_path / "b", LABELS, nested=True)
    first, second = (load_cars196(tmp_path / name, image_size=32) for name in "ab")
    assert first.fingerprint() == second.fingerprint()


def test_second_edition_is_split_by_its_test_flag(tmp_path: Path) -> None:
    rows = [(3, False), (7, True), (196, False), (116, True)]
    write_cars_whole(tmp_path / "cars196", rows)
    data = load_cars196(tmp_path)
    check_labels(data, [3, 196], [7, 116])
    assert data.train.images.shape[2:] == (256, 256)
    assert data.test.paths == ("car_ims/000002.jpg", "car_ims/000004.jpg")


@pytest.mark.parametrize("inner", ["", "car_data", "car_data/car_data"])
def test_folder_a_model_is_read_whatever_the_spelling(tmp_path: Path, inner: str) -> None:
    folder = tmp_path / "cars196" / inner
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
    assert any("1 other files" in note for note in data.notes)


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


def test_part_of_empty_folders_is_an_error_that_blames_no_picture(tmp_path: Path) -> None:
    write_cars_folders(tmp_path / "cars196", {"train": [1, 2], "test": [1]})
    next((tmp_path / "cars196" / "test").rglob("*.jpg")).unlink()
    with pytest.raises(DataError, match=r"image of the test part; all 2 listed are of the other$"):
        load_cars196(tmp_path, image_size=32)


def test_variant_moves_one_model(tmp_path: Path) -> None:
    write_cars_pair(tmp_path, LABELS)
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


@pytest.mark.parametrize(
    "lost", ["cars_train", "cars_test", "devkit/cars_train_annos.mat", "cars_test_annos_withlabels.mat"]
)
def test_partial_set_names_what_is_lacking(tmp_path: Path, lost: str) -> None:
    write_cars_pair(tmp_path / "stanford_cars", LABELS)
    path = tmp_path / "stanford_cars" / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    name = Path(lost).name
    assert missing(tmp_path) == (f"{name} in {tmp_path / 'stanford_cars'}",)
    with pytest.raises(DataError, match=f"not complete: {name} not found"):
        load_cars196(tmp_path)


def test_train_and_test_folders_of_another_set_are_not_taken_for_cars(tmp_path: Path) -> None:
    for part in ("train", "test"):
        (tmp_path / part / "daisy").mkdir(parents=True)
    assert len(missing(tmp_path)) == 1
    with pytest.raises(DataError, match="was not found"):
        load_cars196(tmp_path)


def test_unreadable_pictures_are_left_out_with_a_note(tmp_path: Path) -> None:
    write_cars_pair(tmp_path, LABELS)
    (tmp_path / "cars_train" / "00001.jpg").unlink()
    (tmp_path / "cars_train" / "00003.jpg").write_bytes(b"no image")
    data = load_cars196(tmp_path, image_size=32)
    check_labels(data, [4, 174, 196, 4], LABELS["test"])
    assert data.train.paths == tuple(f"cars_train/{number:05d}.jpg" for number in (2, 4, 5, 6))
    assert "2 images could not be read" in data.notes[-1]
    assert "00001.jpg (no such file)" in data.notes[-1]


def test_part_without_a_readable_picture_is_an_error(tmp_path: Path) -> None:
    write_cars_pair(tmp_path, LABELS)
    for path in (tmp_path / "cars_test").iterdir():
        path.unlink()
    with pytest.raises(DataError, match=r"no readable image of the test part; 3 of 9.*cars_test/00001.jpg"):
        load_cars196(tmp_path)


def row(**change: Any) -> dict[str, Any]:
    return {**BOX, "class": np.uint8(5), "fname": "00001.jpg"} | change


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([row(**{"class": np.uint8(0)})], r"'class' should lie in 1\.\.196"),
        ([row(**{"class": np.uint8(197)})], r"'class' should lie in 1\.\.196"),
        ([row(**{"class": 1.5})], r"'class' should lie in 1\.\.196"),
        ([row(**{"class": "five"})], r"'class' should lie in 1\.\.196"),
        ([row(fname="../00001.jpg")], "no plain path"),
        ([row(fname=np.uint8(3))], "no plain path"),
        ([row(), row()], "annotated twice"),
        ([{**BOX, "fname": "00001.jpg"}], "no 'class'.*withlabels"),
    ],
)
def test_annotations_with_wrong_contents_are_refused(
    tmp_path: Path, rows: list[dict[str, Any]], message: str
) -> None:
    write_cars_pair(tmp_path, LABELS)
    save_mat(tmp_path / "devkit" / "cars_train_annos.mat", annotations=struct_array(rows))
    with pytest.raises(CorruptFileError, match=f"cars_train_annos.mat.*{message}"):
        load_cars196(tmp_path)


@pytest.mark.parametrize("change", [{"annotations": "text"}, {"annotations": np.zeros(3)}, {"other": 1.0}])
def test_files_without_the_struct_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    write_cars_pair(tmp_path, LABELS)
    save_mat(tmp_path / "devkit" / "cars_train_annos.mat", **change)
    with pytest.raises(CorruptFileError, match="struct array"):
        load_cars196(tmp_path)


def test_wrong_folder_or_flag_in_the_second_edition_is_refused(tmp_path: Path) -> None:
    write_cars_whole(tmp_path, [(3, False), (7, True)])
    for change, message in (
        ({"relative_im_path": "other/1.jpg"}, "car_ims/"),
        ({"test": np.uint8(2)}, "0 or 1"),
    ):
        rows = [
            {"relative_im_path": "car_ims/1.jpg", **BOX, "class": np.uint8(1), "test": np.uint8(0)} | change
        ]
        save_mat(tmp_path / "cars_annos.mat", annotations=struct_array(rows))
        with pytest.raises(CorruptFileError, match=message):
            load_cars196(tmp_path)


def test_another_numbering_of_the_classes_is_refused(tmp_path: Path) -> None:
    write_cars_pair(tmp_path, LABELS)
    save_mat(tmp_path / "devkit" / "cars_meta.mat", class_names=cell_array(tuple(sorted(FINE_NAMES))))
    with pytest.raises(CorruptFileError, match=r"cars_meta\.mat: class 2 is 'Acura Integra Type R 2001'"):
        load_cars196(tmp_path)
    spelt = (*FINE_NAMES[:-1], "Smart ForTwo cabriolet")
    save_mat(tmp_path / "devkit" / "cars_meta.mat", class_names=cell_array(spelt))
    assert len(load_cars196(tmp_path, image_size=32).train) == 6


def test_damaged_annotations_leave_nothing_behind(tmp_path: Path, own_cache: Path) -> None:
    write_cars_pair(tmp_path / "data", LABELS)
    path = tmp_path / "data" / "devkit" / "cars_train_annos.mat"
    path.write_bytes(path.read_bytes()[:300])
    before = sorted((tmp_path / "data").rglob("*"))
    with pytest.raises(CorruptFileError, match=r"cars_train_annos\.mat: not a readable MATLAB 5 file"):
        load_cars196(tmp_path / "data")
    assert sorted((tmp_path / "data").rglob("*")) == before
    assert not own_cache.exists()


def test_large_set_is_packed_once_and_the_same(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cars_pair(tmp_path, LABELS)
    (
        tmp_path / "cars_train" / "00002.jpg"
    ).unlink()  # an absent file must not stop the fingerprint of the files
    in_memory = load_cars196(tmp_path, image_size=32)
    assert not own_cache.exists()
    monkeypatch.setattr(packing, "PACK_ABOVE_BYTES", 1000)
    packed = load_cars196(tmp_path, image_size=32)
    assert isinstance(packed.train.images, np.memmap)
    assert packed.fingerprint() == in_memory.fingerprint()


def test_image_size_out_of_range_is_refused(tmp_path: Path) -> None:
    write_cars_pair(tmp_path, LABELS)
    with pytest.raises(UsageError, match="image size"):
        load_cars196(tmp_path, image_size=4)


def test_progress_counts_all_pictures(tmp_path: Path) -> None:
    write_cars_pair(tmp_path, LABELS)
    calls: list[tuple[int, int | None]] = []
    load_cars196(tmp_path, image_size=32, progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (9, 9)

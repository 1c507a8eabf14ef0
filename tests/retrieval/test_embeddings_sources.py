"""From images to the file: every kind of source, and files of it that cannot be read."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from maskcon._utils.errors import DataError, UsageError
from maskcon.api import Run
from maskcon.data import Dataset
from maskcon.data.builtin.registry import SOURCES
from maskcon.data.folder_layout import Found, Layout
from maskcon.retrieval.embeddings_file import Embeddings, read_embeddings
from tests.finished_run import write_photo
from tests.miniature import miniature
from tests.retrieval.images_to_embed import close_to, photos, write_embeddings


def labels(found: Embeddings) -> dict[str, str | None]:
    return {entry.path: entry.coarse for entry in found.entries}


def test_a_folder_is_embedded_as_the_run_encodes_it(run: Run, tmp_path: Path) -> None:
    folder, out = photos(tmp_path / "photos"), tmp_path / "e.parquet"
    outcome = write_embeddings(run, folder, out, chunk_images=3)
    found = read_embeddings(out)
    assert (outcome.embedded, outcome.reused, outcome.total, dict(outcome.failures)) == (10, 0, 10, {})
    assert list(labels(found)) == sorted(labels(found))
    assert all(path.startswith(f"{label}/") for path, label in labels(found).items())
    files = [found.file(row) for row in range(10)]
    close_to(found.vectors, run.encode(files).numpy())
    assert np.abs(found.vectors[0] - found.vectors[1]).max() > 1e-3
    details = [found.header.details[name] for name in ("image_size", "backbone", "run", "in_channels")]
    assert details == [16, "resnet6", "run", 1]
    assert len(found.header.encoder) == 64
    assert {path.name for path in tmp_path.iterdir()} == {"photos", "e.parquet"}


def test_new_images_need_no_labels_and_any_name_works(run: Run, tmp_path: Path) -> None:
    names = ["plain.jpg", 'it\'s "quoted".png', "кот.png", "🐈 cat.webp", "two words/猫.png", "new\nline.png"]
    for seed, name in enumerate(names):
        write_photo(tmp_path / "in" / name, seed)
    write_embeddings(run, tmp_path / "in", tmp_path / "e.parquet")
    found = read_embeddings(tmp_path / "e.parquet")
    assert labels(found) == {name: "two words" if "/" in name else None for name in names}


@pytest.mark.skipif(os.name == "nt", reason="names are text there")
def test_names_that_are_no_text_are_escaped_in_the_file_and_read_back(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    names = [os.fsdecode(name) for name in (b"caf\xe9.png", b"caf\\xe9.png")]
    for seed, name in enumerate(names):
        write_photo(folder / "a.png", seed, (20 + seed, 14))
        (folder / "a.png").rename(folder / name)
    outcome = write_embeddings(run, folder, tmp_path / "e.parquet")
    texts = pq.read_table(tmp_path / "e.parquet").column("path").to_pylist()
    assert sorted(texts) == [r"caf\\xe9.png", r"caf\xe9.png"]
    found = read_embeddings(tmp_path / "e.parquet")
    assert (set(labels(found)), outcome.failures) == (set(names), {})
    close_to(found.vectors, run.encode([found.file(row) for row in range(2)]).numpy())
    assert write_embeddings(run, folder, tmp_path / "e.parquet").embedded == 0


def test_the_label_of_a_folder_with_parts_is_below_the_part(run: Run, tmp_path: Path) -> None:
    for name in ("train/cat/1.png", "test/dog/small/2.png", "train/3.png"):
        write_photo(tmp_path / "in" / name, 0)
    write_embeddings(run, tmp_path / "in", tmp_path / "e.parquet")
    found = read_embeddings(tmp_path / "e.parquet")
    assert labels(found) == {
        "train/cat/1.png": "cat",
        "test/dog/small/2.png": "dog",
        "train/3.png": None,
    }


def test_a_list_of_files_starts_from_where_the_list_lies(run: Run, tmp_path: Path) -> None:
    photos(tmp_path / "lists" / "in", 4)
    chosen = ["in/cat/03.png", "in/dog/00.png", "in/cat/03.png"]
    (tmp_path / "lists" / "some.csv").write_text(
        "\r\n".join(["path", *chosen, "", "in/none.png"]), encoding="utf-8"
    )
    outcome = write_embeddings(run, tmp_path / "lists" / "some.csv", tmp_path / "e.parquet")
    found = read_embeddings(tmp_path / "e.parquet")
    assert list(labels(found)) == ["in/cat/03.png", "in/dog/00.png"]
    assert found.file(0).is_file()
    assert outcome.failures == {"in/none.png": "No such file or directory"}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("none.jpg", r"none\.jpg does not exist; give a folder of images"),
        ("none.csv", r"none\.csv does not exist; give a folder of images"),
        ("iphone.heic", r"iphone\.heic is no image of a known kind \(\.heic\); give"),
        (["one.png", "folder"], "folder is a folder; give one folder alone, or several images"),
    ],
)
def test_sources_that_cannot_be_embedded_are_refused_with_a_reason(
    run, tmp_path, monkeypatch, source, message
) -> None:
    monkeypatch.chdir(tmp_path)
    write_photo(tmp_path / "folder" / "one.png", 0)
    for name in ("one.png", "iphone.heic"):
        (tmp_path / name).write_bytes((tmp_path / "folder" / "one.png").read_bytes())
    with pytest.raises(UsageError, match=message):
        write_embeddings(run, source, "e.parquet")


def test_images_given_one_by_one(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos(tmp_path / "in", 4)
    monkeypatch.chdir(tmp_path)
    write_embeddings(run, ["in/cat/01.png", str(tmp_path / "in/dog/02.png")], "two.parquet")
    write_embeddings(run, "in/cat/01.png", "one.parquet")
    two, one = read_embeddings("two.parquet"), read_embeddings("one.parquet")
    assert two.file(1).samefile("in/dog/02.png")
    close_to(one.vectors, two.vectors[:1])


def test_a_dataset_gives_its_labels_and_ids(run: Run, tmp_path: Path) -> None:
    data = miniature()
    write_embeddings(run, data, tmp_path / "e.parquet", chunk_images=50)
    found = read_embeddings(tmp_path / "e.parquet")
    assert len(found) == len(data.train) + len(data.test)
    assert found.entries[0].path == "train/0"
    assert found.entries[-1].path == f"test/{data.test.index[-1]}"
    assert [entry.coarse for entry in found.entries[:4]] == ["stripes", "stripes", "checks", "checks"]
    close_to(found.vectors[: len(data.train)], run.encode_set(data.train).numpy())
    close_to(found.vectors[len(data.train) :], run.encode_set(data.test).numpy())
    with pytest.raises(UsageError, match="is not a file"):
        found.file(0)


def test_a_dataset_decoded_as_a_whole_reports_failures(run, tmp_path, monkeypatch) -> None:
    asked: dict[str, object] = {}

    def load(name: str, **options: object) -> Dataset:
        asked.update(options)
        return replace(miniature(train=8, test=4), notes=("1 image could not be read",))

    monkeypatch.setattr("maskcon.data.collection.load", load)
    outcome = write_embeddings(run, "hf:user/set", tmp_path / "e.parquet", strict=True, reading=print)
    assert (asked["strict"], asked["progress"]) == (True, print)
    assert outcome.notes == ("1 image could not be read",)


def test_a_named_set_of_images_is_read_from_its_files(run, tmp_path, monkeypatch) -> None:
    for number in range(3):
        write_photo(tmp_path / "sets" / f"{number}.png", number)
    given = (("van", "a"), ("sedan", "b"), ("van", "a"), ("van", "a"))
    files = [Found(f"{row}.png", row > 1, *label) for row, label in enumerate(given)]
    listing = Layout("cars196", tmp_path / "sets", "cars", "", files=files, has_parts=True)
    source = replace(SOURCES["cars196"], listing=lambda root, **_: listing)
    monkeypatch.setitem(SOURCES, "cars196", source)
    outcome = write_embeddings(run, "cars196", tmp_path / "e.parquet")
    found = read_embeddings(tmp_path / "e.parquet")
    assert labels(found) == {"0.png": "van", "1.png": "sedan", "2.png": "van"}
    assert found.file(2).samefile(tmp_path / "sets" / "2.png")
    assert list(outcome.failures) == ["3.png"]


def test_a_part_that_says_its_sizes_keeps_them_beside_one_that_does_not(run: Run, tmp_path: Path) -> None:
    data = miniature()
    sizes = np.full((len(data.test), 2), (16, 9), dtype=np.int32)
    mixed = sized(data, sizes)
    assert mixed.train.sizes is None
    write_embeddings(run, mixed, tmp_path / "e.parquet")
    found = read_embeddings(tmp_path / "e.parquet")
    close_to(found.vectors[: len(data.train)], run.encode_set(data.train).numpy())
    close_to(found.vectors[len(data.train) :], run.encode_set(mixed.test).numpy())


def test_an_image_whose_valid_size_changed_is_embedded_anew(run: Run, tmp_path: Path) -> None:
    data = miniature(train=8, test=4)
    write_embeddings(run, data, tmp_path / "e.parquet")
    sizes = np.full((4, 2), 16, dtype=np.int32)
    assert write_embeddings(run, sized(data, sizes), tmp_path / "e.parquet").embedded == 0  # says the same
    sizes[2] = 16, 9
    assert write_embeddings(run, sized(data, sizes), tmp_path / "e.parquet").embedded == 1


def sized(data: Dataset, sizes: np.ndarray) -> Dataset:
    """The dataset with valid sizes of its test images."""
    return replace(data, test=replace(data.test, sizes=sizes.copy()))


def test_a_named_dataset_of_other_size_can_be_embedded(run: Run, tmp_path: Path) -> None:
    from maskcon.data import load

    outcome = write_embeddings(run, load("embedded").limited(20, 10), tmp_path / "e.parquet")
    assert outcome.total == 30
    assert set(labels(read_embeddings(tmp_path / "e.parquet")).values()) == set(load("embedded").coarse_names)


def test_unreadable_files_are_failures_and_named(run: Run, tmp_path: Path) -> None:
    folder, out = photos(tmp_path / "photos", 3), tmp_path / "e.parquet"
    (folder / "cat" / "text.jpg").write_text("no picture")
    cut = write_photo(folder / "cat" / "cut.png", 1, (64, 64))
    cut.write_bytes(cut.read_bytes()[:2000])
    (folder / "cat" / "nowhere.png").symlink_to(folder / "gone.png")
    os.mkfifo(folder / "cat" / "pipe.png")
    outcome = write_embeddings(run, folder, out)
    assert outcome.total == len(read_embeddings(out)) == 3
    assert set(outcome.failures) == {
        f"cat/{name}" for name in ("text.jpg", "cut.png", "nowhere.png", "pipe.png")
    }
    with pytest.raises(DataError, match=r"cannot be read .* leave --strict off"):
        write_embeddings(run, folder, tmp_path / "strict.parquet", strict=True)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: folder.mkdir(), "no image found in"),
        (
            lambda folder: write_photo(folder / "a.txt.png", 0).write_bytes(b"x"),
            "the one image of .* cannot be read: a.txt.png",
        ),
        (lambda folder: folder.parent.joinpath("in.csv").write_text("path\n"), "lists no image"),
        (
            lambda folder: folder.parent.joinpath("in.csv").write_text("path\nnone.png\n"),
            "the one image of .* cannot be read: none.png",
        ),
        (lambda folder: None, "in does not exist; give a folder of images, a manifest"),
    ],
)
def test_a_source_without_images_is_one_clear_line(run, tmp_path, make, message) -> None:
    make(tmp_path / "in")
    source = tmp_path / ("in.csv" if (tmp_path / "in.csv").exists() else "in")
    with pytest.raises(UsageError, match=message):
        write_embeddings(run, str(source), tmp_path / "e.parquet")
    assert not (tmp_path / "e.parquet").exists()

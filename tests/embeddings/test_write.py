"""From pictures to the file: every kind of source, resumed, refreshed, and with files that cannot be read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import maskcon.embeddings.write as writing
from maskcon.embeddings import read_embeddings, write_embeddings
from maskcon.engine.lock import FolderLock
from maskcon.errors import DataError, MaskconError, UsageError
from maskcon.run import Run
from maskcon.sources import Dataset
from maskcon.sources.known import SOURCES
from maskcon.sources.listed import Listed, Listing
from tests.finished_run import finished_run, write_photo
from tests.miniature import miniature


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return finished_run(tmp_path_factory.mktemp("runs") / "run")


def photos(folder: Path, count: int = 10) -> Path:
    for number in range(count):
        write_photo(folder / ("cat" if number % 2 else "dog") / f"{number:02}.png", number, (20 + number, 14))
    return folder


def close_to(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_folder_is_embedded_as_the_run_encodes_it(run: Run, tmp_path: Path) -> None:
    folder, out = photos(tmp_path / "photos"), tmp_path / "e.parquet"
    outcome = write_embeddings(run, folder, out, part_images=3)
    found = read_embeddings(out)
    assert (outcome.embedded, outcome.taken_over, outcome.count, dict(outcome.left_out)) == (10, 0, 10, {})
    assert list(found.paths) == sorted(found.paths)
    assert all(path.startswith(f"{label}/") for path, label in zip(found.paths, found.coarse, strict=True))
    files = [found.file(row) for row in range(10)]
    close_to(found.vectors, run.encode(files).numpy())
    assert np.abs(found.vectors[0] - found.vectors[1]).max() > 1e-3
    facts = found.facts
    assert (facts.image_size, facts.backbone, facts.run, facts.in_channels) == (16, "resnet6", "run", 1)
    assert len(facts.encoder_sha256) == 64
    assert {path.name for path in tmp_path.iterdir()} == {"photos", "e.parquet"}


def test_new_pictures_need_no_labels_and_any_name_works(run: Run, tmp_path: Path) -> None:
    names = ["plain.jpg", 'it\'s "quoted".png', "кот.png", "🐈 cat.webp", "two words/猫.png", "new\nline.png"]
    for seed, name in enumerate(names):
        write_photo(tmp_path / "in" / name, seed)
    write_embeddings(run, tmp_path / "in", tmp_path / "e.parquet")
    found = read_embeddings(tmp_path / "e.parquet")
    labels = dict(zip(found.paths, found.coarse, strict=True))
    assert labels == {name: "two words" if "/" in name else None for name in names}


@pytest.mark.skipif(os.name == "nt", reason="names are text there")
def test_a_name_that_is_no_text_is_embedded_under_an_escaped_one(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write_photo(folder / "a.png", 0)
    (folder / "a.png").rename(Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9.png")))
    write_embeddings(run, folder, tmp_path / "e.parquet")
    assert read_embeddings(tmp_path / "e.parquet").paths == ("caf\\xe9.png",)


@pytest.mark.skipif(os.name == "nt", reason="names are text there")
def test_of_two_names_that_are_the_same_text_one_is_left_out_and_named(run: Run, tmp_path: Path) -> None:
    """Else the rows of one path would be taken for each other's."""
    folder = tmp_path / "in"
    for seed, name in enumerate((b"caf\xe9.png", b"caf\\xe9.png")):
        write_photo(folder / "a.png", seed, (20 + seed, 14))
        (folder / "a.png").rename(Path(os.fsdecode(os.fsencode(folder) + b"/" + name)))
    outcome = write_embeddings(run, folder, tmp_path / "e.parquet")
    found = read_embeddings(tmp_path / "e.parquet")
    assert found.paths == ("caf\\xe9.png",)
    assert "another file has this name" in outcome.left_out["caf\\xe9.png"]
    close_to(found.vectors, run.encode([folder / "caf\\xe9.png"]).numpy())


def test_the_label_of_a_folder_with_parts_is_below_the_part(run: Run, tmp_path: Path) -> None:
    for name in ("train/cat/1.png", "test/dog/small/2.png", "train/3.png"):
        write_photo(tmp_path / "in" / name, 0)
    write_embeddings(run, tmp_path / "in", tmp_path / "e.parquet")
    found = read_embeddings(tmp_path / "e.parquet")
    assert dict(zip(found.paths, found.coarse, strict=True)) == {
        "train/cat/1.png": "cat",
        "test/dog/small/2.png": "dog",
        "train/3.png": None,
    }


def test_a_list_of_files_starts_from_where_the_list_lies(run: Run, tmp_path: Path) -> None:
    photos(tmp_path / "lists" / "in", 4)
    chosen = ["in/cat/03.png", "in/dog/00.png", "in/cat/03.png"]
    (tmp_path / "lists" / "some.txt").write_text("\r\n".join([*chosen, "", "in/none.png"]), encoding="utf-8")
    outcome = write_embeddings(run, tmp_path / "lists" / "some.txt", tmp_path / "e.parquet")
    found = read_embeddings(tmp_path / "e.parquet")
    assert found.paths == ("in/cat/03.png", "in/dog/00.png")
    assert found.file(0).is_file()
    assert outcome.left_out == {"in/none.png": "No such file or directory"}


def test_a_list_may_begin_with_a_byte_order_mark(run: Run, tmp_path: Path) -> None:
    write_photo(tmp_path / "кот.png", 0)
    (tmp_path / "some.txt").write_text("кот.png\n", encoding="utf-8-sig")
    write_embeddings(run, tmp_path / "some.txt", tmp_path / "e.parquet")
    assert read_embeddings(tmp_path / "e.parquet").paths == ("кот.png",)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("none.jpg", r"none\.jpg does not exist; give a folder of pictures"),
        ("none.txt", r"none\.txt does not exist; give a folder of pictures"),
        ("iphone.heic", r"iphone\.heic is no picture of a known kind \(\.heic\); give"),
        (["one.png", "folder"], "folder is a folder; give one folder alone, or several pictures"),
    ],
)
def test_what_cannot_be_embedded_is_said_in_words_about_it(
    run, tmp_path, monkeypatch, source, message
) -> None:
    monkeypatch.chdir(tmp_path)
    write_photo(tmp_path / "folder" / "one.png", 0)
    for name in ("one.png", "iphone.heic"):
        (tmp_path / name).write_bytes((tmp_path / "folder" / "one.png").read_bytes())
    with pytest.raises(UsageError, match=message):
        write_embeddings(run, source, "e.parquet")


def test_pictures_given_one_by_one(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos(tmp_path / "in", 4)
    monkeypatch.chdir(tmp_path)
    write_embeddings(run, ["in/cat/01.png", str(tmp_path / "in/dog/02.png")], "two.parquet")
    write_embeddings(run, "in/cat/01.png", "one.parquet")
    two, one = read_embeddings("two.parquet"), read_embeddings("one.parquet")
    assert two.file(1).samefile("in/dog/02.png")
    close_to(one.vectors, two.vectors[:1])


def test_a_data_set_gives_its_labels_and_ids(run: Run, tmp_path: Path) -> None:
    data = miniature()
    write_embeddings(run, data, tmp_path / "e.parquet", part_images=50)
    found = read_embeddings(tmp_path / "e.parquet")
    assert len(found) == len(data.train) + len(data.test)
    assert found.paths[0] == "train/0"
    assert found.paths[-1] == f"test/{data.test.index[-1]}"
    assert found.coarse[:4] == ("stripes", "stripes", "checks", "checks")
    close_to(found.vectors[: len(data.train)], run.encode_set(data.train).numpy())
    close_to(found.vectors[len(data.train) :], run.encode_set(data.test).numpy())
    with pytest.raises(UsageError, match="is not a file of its own"):
        found.file(0)


def test_a_data_set_decoded_as_a_whole_says_what_it_left_out(run, tmp_path, monkeypatch) -> None:
    asked: dict[str, object] = {}

    def load(name: str, **options: object) -> Dataset:
        asked.update(options)
        return replace(miniature(train=8, test=4), notes=("1 image could not be read",))

    monkeypatch.setattr("maskcon.pictures.given.load", load)
    outcome = write_embeddings(run, "hf:user/set", tmp_path / "e.parquet", strict=True, reading=print)
    assert (asked["strict"], asked["progress"]) == (True, print)
    assert outcome.notes == ("1 image could not be read",)


def test_a_named_set_of_pictures_is_read_from_its_files(run, tmp_path, monkeypatch) -> None:
    for number in range(3):
        write_photo(tmp_path / "sets" / f"{number}.png", number)
    listing = Listing(
        name="cars196",
        title="cars",
        folder=tmp_path / "sets",
        family="photos",
        coarse_names=("sedan", "van"),
        fine_names=("a", "b"),
        coarse_of_fine=(1, 0),
        train=(Listed("0.png", 0, 0), Listed("1.png", 1, 1)),
        test=(Listed("2.png", 0, 2), Listed("3.png", 0, 3)),
    )
    source = replace(SOURCES["cars196"], listing=lambda root, **_: listing)
    monkeypatch.setitem(SOURCES, "cars196", source)
    outcome = write_embeddings(run, "cars196", tmp_path / "e.parquet")
    found = read_embeddings(tmp_path / "e.parquet")
    assert (found.paths, found.coarse) == (("0.png", "1.png", "2.png"), ("van", "sedan", "van"))
    assert found.file(2).samefile(tmp_path / "sets" / "2.png")
    assert list(outcome.left_out) == ["3.png"]


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
    """The data set with valid sizes of its test images."""
    return replace(data, test=replace(data.test, sizes=sizes.copy()))


def test_a_named_data_set_of_other_size_can_be_embedded(run: Run, tmp_path: Path) -> None:
    from maskcon.sources import load

    outcome = write_embeddings(run, load("embedded").limited(20, 10), tmp_path / "e.parquet")
    assert outcome.count == 30
    assert set(read_embeddings(tmp_path / "e.parquet").coarse) == set(load("embedded").coarse_names)


class Killed(BaseException):
    """Stands for a kill: nothing of ours catches it."""


def test_a_stopped_command_goes_on_and_ends_with_the_same_bytes(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = photos(tmp_path / "photos", 11), tmp_path / "e.parquet"
    (folder / "cat" / "broken.jpg").write_bytes(b"no picture")
    write_embeddings(run, folder, tmp_path / "undisturbed.parquet", part_images=3)

    def stop(done: int, total: int) -> None:
        if done >= 7:
            raise Killed

    with pytest.raises(Killed):
        write_embeddings(run, folder, out, part_images=3, progress=stop)
    assert not out.exists()
    seen: list[int] = []
    embed = writing._Embedder.__call__

    def counted(self: writing._Embedder, block: writing.Block) -> np.ndarray:
        seen.extend(block.rows)
        return embed(self, block)

    monkeypatch.setattr(writing._Embedder, "__call__", counted)
    outcome = write_embeddings(run, folder, out, part_images=3)
    assert (outcome.embedded, outcome.taken_over, len(seen)) == (len(seen), 11 - len(seen), outcome.embedded)
    assert 0 < len(seen) <= 5
    assert out.read_bytes() == (tmp_path / "undisturbed.parquet").read_bytes()
    assert not list(tmp_path.glob(".*"))


KILLED_ITSELF = """
import os, signal, sys
from maskcon.embeddings import write_embeddings
from maskcon.run import Run

def kill(done, total):
    if done >= int(sys.argv[4]):
        os.kill(os.getpid(), signal.SIGKILL)

write_embeddings(Run.open(sys.argv[1]), sys.argv[2], sys.argv[3], part_images=2, progress=kill)
"""


@pytest.mark.slow
def test_killed_three_times_for_real_it_goes_on_and_ends_with_the_same_bytes(
    run: Run, tmp_path: Path
) -> None:
    folder, out = photos(tmp_path / "photos", 12), tmp_path / "e.parquet"
    write_embeddings(run, folder, tmp_path / "undisturbed.parquet", part_images=2)
    for done in (4, 6, 12):
        arguments = [str(run.folder), str(folder), str(out), str(done)]
        ended = subprocess.run([sys.executable, "-c", KILLED_ITSELF, *arguments], check=False)
        assert ended.returncode == -signal.SIGKILL
    outcome = write_embeddings(run, folder, out, part_images=2)
    assert (outcome.embedded, outcome.taken_over) == (0, 12)
    assert out.read_bytes() == (tmp_path / "undisturbed.parquet").read_bytes()


def test_a_damaged_part_is_embedded_anew_and_said_so(run: Run, tmp_path: Path) -> None:
    folder, out = photos(tmp_path / "photos"), tmp_path / "e.parquet"

    def stop(done: int, total: int) -> None:
        if done == 6:
            raise Killed

    with pytest.raises(Killed):
        write_embeddings(run, folder, out, part_images=3, progress=stop)
    part = min((tmp_path / ".e.parquet.parts").glob("part-*"))
    content = part.read_bytes()
    part.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
    outcome = write_embeddings(run, folder, out, part_images=3)
    assert (outcome.embedded, outcome.taken_over) == (7, 3)
    assert "does not match its checksum" in outcome.notes[0]
    found = read_embeddings(out)
    close_to(found.vectors, run.encode([found.file(row) for row in range(10)]).numpy())


def test_only_what_is_new_or_changed_is_embedded_again(run: Run, tmp_path: Path) -> None:
    folder, out = photos(tmp_path / "photos"), tmp_path / "e.parquet"
    write_embeddings(run, folder, out, part_images=4)
    before, written = out.read_bytes(), out.stat().st_mtime_ns
    again = write_embeddings(run, folder, out, part_images=4)
    assert (again.embedded, again.taken_over) == (0, 10)
    assert (out.read_bytes(), out.stat().st_mtime_ns) == (before, written)  # not even written again

    write_photo(folder / "cat" / "01.png", 99)  # changed
    write_photo(folder / "cat" / "00_new.png", 98)  # added
    (folder / "dog" / "02.png").unlink()  # removed
    outcome = write_embeddings(run, folder, out, part_images=4)
    assert (outcome.embedded, outcome.taken_over) == (2, 8)
    found = read_embeddings(out)
    assert list(found.paths) == sorted(path.relative_to(folder).as_posix() for path in folder.glob("*/*"))
    close_to(found.vectors, run.encode([found.file(row) for row in range(10)]).numpy())


def test_another_encoder_takes_nothing_over(run: Run, tmp_path: Path) -> None:
    folder, out = photos(tmp_path / "photos", 4), tmp_path / "e.parquet"
    write_embeddings(run, folder, out)
    other = finished_run(tmp_path / "other", seed=1)
    before = out.read_bytes()
    with pytest.raises(
        UsageError, match=r"holds 4 embeddings of .*another encoder or source.* or give --replace"
    ):
        write_embeddings(other, folder, out)
    assert out.read_bytes() == before
    outcome = write_embeddings(other, folder, out, replace=True)
    assert (outcome.embedded, outcome.taken_over) == (4, 0)
    assert "held 4 embeddings of" in outcome.notes[0]
    close_to(read_embeddings(out).vectors, other.encode(sorted(folder.glob("*/*"))).numpy())


def test_a_foreign_file_is_not_overwritten(run: Run, tmp_path: Path) -> None:
    folder, out = photos(tmp_path / "photos", 2), tmp_path / "thesis.parquet"
    out.write_bytes(b"years of work")
    with pytest.raises(UsageError, match="it is left as it is: delete it, or choose another --out"):
        write_embeddings(run, folder, out)
    assert out.read_bytes() == b"years of work"
    assert {path.name for path in tmp_path.iterdir()} == {"photos", "thesis.parquet"}


def test_a_device_that_is_not_there_is_refused_before_anything_is_read(run: Run, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown device"):
        write_embeddings(run, tmp_path / "not even there", tmp_path / "e.parquet", device="abacus")
    assert list(tmp_path.iterdir()) == []


def test_unreadable_files_are_left_out_and_named(run: Run, tmp_path: Path) -> None:
    folder, out = photos(tmp_path / "photos", 3), tmp_path / "e.parquet"
    (folder / "cat" / "text.jpg").write_text("no picture")
    cut = write_photo(folder / "cat" / "cut.png", 1, (64, 64))
    cut.write_bytes(cut.read_bytes()[:2000])
    (folder / "cat" / "nowhere.png").symlink_to(folder / "gone.png")
    os.mkfifo(folder / "cat" / "pipe.png")
    outcome = write_embeddings(run, folder, out)
    assert outcome.count == len(read_embeddings(out)) == 3
    assert set(outcome.left_out) == {
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
            "the one picture of .* cannot be read: a.txt.png",
        ),
        (lambda folder: folder.parent.joinpath("in.txt").write_text("\n"), "names no file"),
        (
            lambda folder: folder.parent.joinpath("in.txt").write_text("none.png\n"),
            "the one picture of .* cannot be read: none.png",
        ),
        (lambda folder: None, "in does not exist; give a folder of pictures, a manifest"),
    ],
)
def test_a_source_without_pictures_is_one_clear_line(run, tmp_path, make, message) -> None:
    make(tmp_path / "in")
    source = tmp_path / ("in.txt" if (tmp_path / "in.txt").exists() else "in")
    with pytest.raises(UsageError, match=message):
        write_embeddings(run, str(source), tmp_path / "e.parquet")
    assert not (tmp_path / "e.parquet").exists()


def test_places_that_cannot_be_written_are_refused_before_anything_is_embedded(
    run: Run, tmp_path: Path
) -> None:
    folder = photos(tmp_path / "photos", 2)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write to"):
        write_embeddings(run, folder, tmp_path / "file" / "e.parquet")
    with pytest.raises(UsageError, match="is a folder; give a file to write"):
        write_embeddings(run, folder, folder)


def test_two_commands_do_not_write_one_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / ".e.parquet.parts").mkdir()
    with (
        FolderLock(tmp_path / ".e.parquet.parts"),
        pytest.raises(UsageError, match=r"another run is writing to .* choose another --out"),
    ):
        write_embeddings(run, photos(tmp_path / "photos", 2), tmp_path / "e.parquet")


def test_memory_does_not_grow_with_the_pictures(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never more than two blocks of pixels, and a part of vectors, at a time."""
    monkeypatch.setattr("maskcon.embeddings.write.BLOCK_IMAGES", 2)
    sizes: list[int] = []
    embed = writing._Embedder.__call__

    def counted(self: writing._Embedder, block: writing.Block) -> np.ndarray:
        sizes.append(len(block.images))
        return embed(self, block)

    monkeypatch.setattr(writing._Embedder, "__call__", counted)
    write_embeddings(run, photos(tmp_path / "photos", 9), tmp_path / "e.parquet", part_images=3)
    assert sizes == [2, 1, 2, 1, 2, 1]


def test_progress_is_told_block_by_block_within_a_part(run: Run, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("maskcon.embeddings.write.BLOCK_IMAGES", 2)
    told: list[tuple[int, int]] = []
    write_embeddings(
        run,
        photos(tmp_path / "photos", 5),
        tmp_path / "e.parquet",
        progress=lambda *counts: told.append(counts),
    )
    assert told == [(0, 5), (2, 5), (4, 5), (5, 5)]


def test_an_encoder_that_gives_no_numbers_is_an_error(run: Run, tmp_path: Path, monkeypatch) -> None:
    import torch

    monkeypatch.setattr(writing, "features_of", lambda *_: torch.full((2, 16), torch.nan))
    with pytest.raises(MaskconError, match="NaN or Inf"):
        write_embeddings(run, photos(tmp_path / "photos", 2), tmp_path / "e.parquet")
    assert not (tmp_path / "e.parquet").exists()

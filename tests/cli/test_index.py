"""`maskcon index` as a user meets it: every source, refreshed, and killed."""

from __future__ import annotations

import random
import shutil
import signal
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from maskcon._utils.errors import CorruptFileError, DataError, UsageError
from maskcon._utils.files import FolderLock
from maskcon.api import Run
from maskcon.data import load
from maskcon.data.image_readers import with_channels
from maskcon.models.encoder_file import read_encoder
from maskcon.retrieval.embeddings import INDEX, Index
from maskcon.retrieval.nearest import unit_rows
from tests.cli.commands import maskcon, start
from tests.cli.searching import NAMES, answers, call, picture, refused
from tests.data.miniatures import write_cifar10
from tests.finished_run import finished_run


def test_the_same_command_again_takes_in_what_changed(run, photos, tmp_path):
    where = ("--out", tmp_path / "index")
    call("index", run, photos, *where)
    assert "0 added, 0 changed, 0 removed, 5 unchanged; 0 embedded" in call("index", run, photos, *where)
    picture(photos / "a.png", 77)
    (photos / "🐈.jpg").unlink()
    picture(photos / "b.png", 78, size=(300, 40))
    (photos / "broken.png").write_text("no picture")
    told = call("index", run, photos, *where)
    assert "1 added, 1 changed, 1 removed, 3 unchanged; 2 embedded" in told
    assert "left out: broken.png (not an image" in told
    assert "cannot be read" in refused(DataError, "index", run, photos, *where, "--strict")


def test_an_index_of_another_model_or_source_or_a_damaged_one_is_not_overwritten_unasked(
    run, photos, tmp_path
):
    where = tmp_path / "index"
    call("index", run, photos, "--out", where)
    other = finished_run(tmp_path / "other", seed=1).folder
    assert "made with another model" in refused(
        UsageError, "search", other, photos / "a.png", "--index", where
    )
    assert "made with another model" in refused(UsageError, "index", other, photos, "--out", where)
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(photos, elsewhere)
    assert ", not " in refused(UsageError, "index", run, elsewhere, "--out", where)
    assert "0 embedded" in call("index", run, elsewhere, "--out", where, "--replace")
    assert answers(run, photos / "a.png", "-k", "1", "--index", where)[0][0][0] == str(elsewhere / "a.png")
    assert "5 embedded" in call("index", other, photos, "--out", where, "--replace")
    file = where / INDEX
    file.write_bytes(file.read_bytes()[:-5])
    assert "delete it" in refused(UsageError, "index", other, photos, "--out", where, "--replace")
    assert "its end is missing" in refused(
        CorruptFileError, "search", other, photos / "a.png", "--index", where
    )
    file.unlink()
    assert "5 embedded" in call("index", other, photos, "--out", where)


def test_two_commands_do_not_write_one_index_at_once(run, photos, tmp_path):
    where = tmp_path / "index"
    call("index", run, photos, "--out", where)
    with FolderLock(where):
        assert "another run or explorer is writing" in refused(
            UsageError, "index", run, photos, "--out", where
        )


def test_the_encoder_is_read_once_however_many_chunks_there_are(run, photos, tmp_path, monkeypatch):
    reads = []

    def counting(path):
        reads.append(path)
        return read_encoder(path)

    monkeypatch.setattr("maskcon.api.run.read_encoder", counting)
    monkeypatch.setattr(sys.modules["maskcon.retrieval.store"], "CHUNK_IMAGES", 1)
    assert "5 embedded" in call("index", run, photos, "--out", tmp_path / "index")
    assert len(reads) == 1


def test_a_data_set_in_a_folder_of_its_own_is_indexed_and_drawn_from_there(tmp_path):
    write_cifar10(tmp_path / "data")
    data = load("cifar10", root=tmp_path / "data")
    folder = finished_run(tmp_path / "run", data, source="cifar10").folder
    place = ("--data-root", tmp_path / "data")
    call("index", folder, "cifar10", *place)
    query = picture(tmp_path / "query.png", 3, size=(32, 32))
    call("search", folder, query, "--grid", tmp_path / "grid.png", *place)
    assert (tmp_path / "grid.png").exists()


def test_a_data_set_by_name_can_be_indexed_and_drawn(tmp_path):
    data = load("embedded")
    folder = finished_run(tmp_path / "run", data, source="embedded").folder
    assert f"{len(data.train) + len(data.test):,} added" in call("index", folder, "embedded")
    query = picture(tmp_path / "query.png", 3, size=(28, 28))
    hits = answers(folder, query, "-k", "4", "--grid", tmp_path / "grid.png")[0]
    assert len(hits) == 4
    assert all(path.startswith(("train/", "test/")) for path, _ in hits)
    assert (tmp_path / "grid.png").exists()


def test_a_list_of_files_is_indexed_from_where_it_lies(run, photos, tmp_path):
    """As `embed` takes it; a picture that it names and that is not there is told."""
    (photos / "some.csv").write_text("\n".join(["path", *NAMES[:2], "absent.png"]), encoding="utf-8")
    told = call("index", run, photos / "some.csv", "--out", tmp_path / "index")
    assert "2 images in" in told
    assert "left out: absent.png (No such file or directory)" in told
    hits = answers(run, photos / NAMES[1], "--index", tmp_path / "index", "--grid", tmp_path / "grid.png")[0]
    assert [path for path, _ in hits] == [str(photos / NAMES[1]), str(photos / NAMES[0])]


def test_colour_pictures_of_a_data_set_serve_an_encoder_of_grey_ones_and_its_notes_are_told(
    run, tmp_path, monkeypatch
):
    write_cifar10(tmp_path / "data")
    data = load("cifar10", root=tmp_path / "data")
    noted = replace(data, notes=("1 image could not be read",))
    monkeypatch.setattr("maskcon.data.collection.load", lambda name, **_: noted)
    assert "note: 1 image could not be read" in call("index", run, "cifar10", "--out", tmp_path / "index")
    index = Index(tmp_path / "index")
    names = [entry.path for entry in index.entries]
    assert len(names) == len(data.train) + len(data.test)
    expected = Run.open(run).encode(with_channels(data.test.images, 1)).numpy()
    for number, vector in zip(data.test.index.tolist(), unit_rows(expected), strict=True):
        np.testing.assert_allclose(index.vectors[names.index(f"test/{number}")], vector, atol=1e-5)


@pytest.mark.slow
def test_kills_at_random_moments_lose_no_index(run, tmp_path):
    chance = random.Random(0)
    photos, where = tmp_path / "photos", tmp_path / "index"
    for number in range(600):
        picture(photos / f"{number}.png", number)
    arguments = ["index", str(run), str(photos), "--out", str(where)]
    begun = time.monotonic()
    assert maskcon(*arguments[:-1], str(tmp_path / "whole"), cwd=tmp_path).returncode == 0
    usual = time.monotonic() - begun
    kills = 0
    while kills < 8:
        process = start(*arguments, cwd=tmp_path)
        time.sleep(chance.uniform(0.3, 1.1) * usual)
        process.kill()
        kills += process.wait() == -signal.SIGKILL
        process.communicate()
        if (where / INDEX).exists():
            answers(run, photos / "0.png", "-k", "1", "--index", where)
            shutil.rmtree(where)
    assert maskcon(*arguments, cwd=tmp_path).returncode == 0
    one, other = (Index(folder) for folder in (where, tmp_path / "whole"))
    assert one.entries == other.entries
    np.testing.assert_allclose(one.vectors, other.vectors, atol=1e-5)  # batches may have been cut elsewhere

"""Kinds of a run's images as a library opens them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from maskcon._utils.errors import UsageError
from maskcon.api import Run
from maskcon.api.diagnosis import diagnose_run
from maskcon.api.kinds import open_kinds
from maskcon.config.settings import Machine
from maskcon.data.kinds_file import read_kinds, write_kinds
from tests.finished_run import finished_run, write_photo
from tests.miniature import miniature

CPU = Machine(device="cpu")


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    return finished_run(tmp_path_factory.mktemp("runs") / "mini")


@pytest.fixture
def photos(tmp_path) -> Path:
    for number in range(8):
        write_photo(tmp_path / "photos" / "cat" / f"{number}.png", number, (20, 14 + number))
    return tmp_path / "photos"


def test_saved_kinds_are_there_when_opened_again_with_what_was_edited_and_added(run, photos):
    with open_kinds(run, str(photos), machine=CPU) as (session, done):
        found = session.next_kinds()
        session.save(found)
        assert (session.before, done.embedded, len(found.rows)) == (None, 8, 8)
    file = session.folder / "kinds.csv"
    write_kinds(file, [replace(row, kind="Siamese") for row in read_kinds(file)])
    write_photo(photos / "cat" / "new.png", 20, (20, 20))
    with open_kinds(run, machine=CPU, needs_kinds=True) as (session, done):
        assert session.before is not None
        assert session.before.rows == found.rows
        assert (done.embedded, done.reused) == (1, 8)
        assert {row.kind for row in session.next_kinds().rows} == {"Siamese"}
        assert len(session.next_kinds().rows) == len(session.embedded.paths) == 9


def test_folder_of_kinds_is_open_once_at_a_time(run, photos, tmp_path):
    def opened():
        return open_kinds(run, str(photos), tmp_path / "kinds", machine=CPU)

    with (
        opened(),
        pytest.raises(UsageError, match=r"maskcon explore` or another command has .*kinds open; end it"),
        opened(),
    ):
        pass
    with opened():
        pass


def test_pixels_come_without_the_canvas_around_them_and_lost_images_are_left_out(run, photos, tmp_path):
    with open_kinds(run, str(photos), tmp_path / "kinds", machine=CPU) as (session, _):
        (photos / "cat" / "1.png").unlink()
        pixels = session.read_pixels(["cat/7.png", "cat/1.png", "cat/0.png"])
    assert sorted(pixels) == ["cat/0.png", "cat/7.png"]
    shapes = [pixels[path].shape[1:] for path in ("cat/0.png", "cat/7.png")]
    assert shapes == [(11, 16), (16, 15)]  # 20 x 14 and 20 x 21 on a canvas of 16


def test_diagnosis_looks_at_kinds_and_at_the_seeds_beside_a_run(tmp_path):
    first = finished_run(tmp_path / "a", miniature(), source="miniature", seed=0)
    finished_run(tmp_path / "b", miniature(), source="miniature", seed=1)
    (tmp_path / "c").mkdir()
    told: list[tuple[int, int]] = []
    found = diagnose_run(first, machine=CPU, data=miniature(), progress=lambda *done: told.append(done))
    assert found.measures.images == len(miniature().test)
    assert told[-1] == (3 * found.measures.images, 3 * found.measures.images)
    assert found.measures.kinds is None
    assert found.as_json()["findings"][0]["question"] == "collapsed?"

from __future__ import annotations

import errno
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maskcon._utils.errors import MaskconError, UsageError
from maskcon.api import Run
from maskcon.config.settings import Machine
from maskcon.data import Dataset, ImageSet, load
from maskcon.data.decoding import canvas_for
from maskcon.discovery.kinds import Embedded, find_kinds
from maskcon.discovery.kinds_folder import Origin, write_folder
from maskcon.report.summary import CHANGED, write_summary
from maskcon.training.journal import Journal
from maskcon.training.run_folder import CONFIG, JOURNAL, RESULT, json_bytes
from tests.finished_run import finished_run, write_photo
from tests.miniature import miniature

NAMES = ("katzen & co", "собаки", '鳥 🐦 "<script>"')


def finished(
    folder: Path,
    data: Dataset,
    *,
    source: str = "miniature",
    seed: int = 0,
    frozen: bool = False,
    **changes: Any,
) -> Run:
    run = finished_run(folder, data, source=source, seed=seed, frozen=frozen)
    (folder / CONFIG).write_text(run.config.changed(**changes).to_yaml(), encoding="utf-8")
    told = {**run.result, **{key: value for key, value in changes.items() if key in run.result}}
    (folder / RESULT).write_bytes(json_bytes(told))
    run = Run.open(folder)
    with Journal(run.folder / JOURNAL) as journal:
        journal.write("start", step=0)
        for step in range(1, 4):
            journal.write("step", step=step, epoch=0, loss=2.0 - step / 4)
        journal.write("evaluation", step=3, epoch=1, recall=run.result["recall"])
    return run


def photos(folder: Path, count: int = 18) -> Path:
    for number in range(count):
        write_photo(folder / NAMES[number % 3] / f'it\'s "{number}" 🐈.png', number)
    return folder


def map_data(page: Path) -> dict:
    found = re.search(r'id="map-data">(.*?)</script>', page.read_text("utf-8"), re.DOTALL)
    assert found is not None
    return dict(json.loads(found.group(1)))


def test_a_run_on_a_folder_without_fine_labels_has_a_page(tmp_path: Path) -> None:
    folder = photos(tmp_path / "my photos")
    run = finished(tmp_path / "run", load(str(folder), image_size=16), source=str(folder))
    told: list[str] = []
    page = write_summary([run.folder], tmp_path / "out", message=told.append)
    text = page.read_text("utf-8")
    assert "No fine labels are known for these images" in text
    assert "none known: training needs none" in text
    assert "Comes from" in text
    assert "<script>&quot;" not in text
    assert "&lt;script&gt;" in text
    assert f"maskcon train &#39;{folder}&#39; --method maskcon" in text
    data = map_data(page)
    assert all("🐈.png" in name and "/" in name for name in data["ids"])  # paths, as they are
    assert [c["title"] for c in data["colourings"]] == ["Coarse label"]
    assert any("test images" in line for line in told)


def test_a_page_is_written_though_images_were_added(tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos")
    run = finished(tmp_path / "run", load(str(folder), image_size=16), source=str(folder))
    before = write_summary([run.folder], tmp_path / "before")
    assert CHANGED not in before.read_text("utf-8")
    photos(folder, 30)
    told: list[str] = []
    after = write_summary([run.folder], tmp_path / "after", message=told.append)
    assert CHANGED in after.read_text("utf-8")
    assert CHANGED in told


def test_the_same_result_is_promised_only_on_the_same_images(tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos")
    run = finished(tmp_path / "run", load(str(folder), image_size=16), source=str(folder))
    assert "with the same result:" in write_summary([run.folder], tmp_path / "before").read_text("utf-8")
    photos(folder, 30)
    after = write_summary([run.folder], tmp_path / "after").read_text("utf-8")
    assert "<p>Train it again:</p>" in after
    assert "with the same result" not in after


def test_the_command_works_from_any_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos(tmp_path / "work" / "photos")
    monkeypatch.chdir(tmp_path / "work")
    run = finished(Path("run"), load("./photos", image_size=16), source="./photos")
    told = {**run.result, "source_path": str(tmp_path / "work" / "photos")}
    (run.folder / RESULT).write_bytes(json_bytes(told))
    monkeypatch.chdir(tmp_path)
    page = write_summary([Path("work/run")], Path("out")).read_text("utf-8")
    assert f"maskcon train {tmp_path / 'work' / 'photos'} --method" in page
    assert "--out work/run-again<" in page


def test_a_page_is_made_on_the_device_asked_for(tmp_path: Path, monkeypatch) -> None:
    used: list[str] = []
    encode_set = Run.encode_set

    def watched(self: Run, part: ImageSet, *, device: str, progress: Any) -> Any:
        used.append(device)
        return encode_set(self, part, progress=progress)

    monkeypatch.setattr(Run, "encode_set", watched)
    folder = photos(tmp_path / "photos")
    run = finished(tmp_path / "run", load(str(folder), image_size=16), source=str(folder))
    write_summary([run.folder], tmp_path / "usual")
    write_summary([run.folder], tmp_path / "asked", machine=Machine(device="cpu"))
    assert used == ["auto", "cpu"]
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(UsageError, match="'cuda' is not available here; use --device cpu"):
        write_summary([run.folder], tmp_path / "no", machine=Machine(device="cuda"))


def test_a_place_where_no_report_can_be_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos")
    run = finished(tmp_path / "run", load(str(folder), image_size=16), source=str(folder))
    (tmp_path / "file").write_text("mine")
    read: list[tuple[int, int]] = []
    for target, words in (
        (tmp_path / "file", "cannot write to"),
        (folder / "report", "among the images"),  # its figures would be training images next time
    ):
        with pytest.raises(UsageError, match=words):
            write_summary([run.folder], target, reading=lambda done, total: read.append((done, total)))
    assert read == []
    assert (tmp_path / "file").read_text() == "mine"


def test_a_full_disk_is_no_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    data = miniature()
    run = finished(tmp_path / "run", data)
    monkeypatch.setattr("maskcon.report.summary.write_report", full)
    with pytest.raises(MaskconError, match=r"could not write the report into .*out: No space left on device"):
        write_summary([run.folder], tmp_path / "out", data=data)


def test_reading_and_embedding_tell_how_far_they_are(tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos")
    data = load(str(folder), image_size=16)
    runs = [finished(tmp_path / name, data, source=str(folder), w=w) for name, w in (("a", 1.0), ("b", 0.5))]
    read: list[tuple[int, int]] = []
    embedded: list[tuple[int, int]] = []
    write_summary(
        [run.folder for run in runs],
        tmp_path / "out",
        reading=lambda done, total: read.append((done, total)),
        embedding=lambda done, total: embedded.append((done, total)),
    )
    assert read[-1] == (18, 18)
    count = len(data.test)
    assert embedded == [(count, 2 * count), (2 * count, 2 * count)]


def test_a_frozen_run_has_a_page(tmp_path: Path) -> None:
    data = miniature()
    run = finished(tmp_path / "run", data, frozen=True)
    page = write_summary([run.folder], tmp_path / "out", data=data)
    assert len(map_data(page)["ids"]) == 24
    assert "How to run it again" not in page.read_text("utf-8")  # arrays have no command


def test_several_runs_share_a_page_and_the_map_shows_each_kind_once(tmp_path: Path) -> None:
    data = miniature()
    runs = [finished(tmp_path / f"seed{seed}", data, seed=seed) for seed in (0, 1)]
    page = write_summary([r.folder for r in runs], tmp_path / "out", data=data, command="maskcon compare x")
    assert [layout["name"] for layout in map_data(page)["layouts"]] == ["MaskCon"]
    text = page.read_text("utf-8")
    assert "maskcon compare x" in text
    assert "maskcon.fit(" not in text
    for spelling in (runs[0].folder, runs[1].folder / ".." / "seed0"):
        with pytest.raises(UsageError, match="given twice"):
            write_summary([runs[0].folder, spelling], tmp_path / "again", data=data)


def test_runs_that_kept_the_same_images_in_other_sizes_share_the_map(tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos")
    runs = [
        finished(
            tmp_path / str(size),
            load(str(folder), image_size=canvas_for(size)),
            source=str(folder),
            image_size=size,
        )
        for size in (8, 12)
    ]
    assert runs[0].result["data"] != runs[1].result["data"]
    told: list[str] = []
    page = write_summary([run.folder for run in runs], tmp_path / "out", message=told.append)
    found = map_data(page)
    assert [layout["name"] for layout in found["layouts"]] == ["8", "12"]
    assert found["layouts"][0]["cosines"] != found["layouts"][1]["cosines"]
    assert not any("Not on the map" in line for line in told)


def test_a_run_on_other_images_is_said_to_be_missing_from_the_map(tmp_path: Path) -> None:
    folders = [photos(tmp_path / "first", 18), photos(tmp_path / "second", 24)]
    runs = [
        finished(tmp_path / f"run{number}", load(str(folder), image_size=16), source=str(folder))
        for number, folder in enumerate(folders)
    ]
    told: list[str] = []
    page = write_summary([run.folder for run in runs], tmp_path / "out", message=told.append)
    note = "Not on the map, because their images differ or are missing: run1."
    assert note in told
    text = page.read_text("utf-8")
    assert note in text
    assert [layout["name"] for layout in map_data(page)["layouts"]] == ["run0"]
    assert f"maskcon train {folders[1]} --method" in text


def test_the_map_can_be_made_smaller(tmp_path: Path) -> None:
    data = miniature()
    run = finished(tmp_path / "run", data)
    page = write_summary([run.folder], tmp_path / "out", data=data, images=8)
    labels = map_data(page)["colourings"][0]["labels"]
    assert np.bincount(labels).tolist() == [2, 2, 2, 2]


def test_page_of_a_run_with_kinds_opens_with_the_verdict_and_shows_them(tmp_path):
    run = finished(tmp_path / "run", miniature())
    page = write_summary([run.folder], tmp_path / "page", data=miniature())
    text = page.read_text(encoding="utf-8")
    assert "collapsed?" in text.split("<main")[0].lower() or "Collapsed" in text
    assert 'id="kinds"' not in text
    vectors = np.random.default_rng(0).standard_normal((40, 8)).astype(np.float32)
    kinds = find_kinds(Embedded([f"test/{row}" for row in range(40)], ["a"] * 40, vectors))
    (run.folder / "kinds").mkdir()
    write_folder(run.folder / "kinds", kinds, Origin(run.encoder_digest(), None))
    page = write_summary([run.folder], tmp_path / "page", data=miniature())
    assert '<section id="kinds"' in page.read_text(encoding="utf-8")

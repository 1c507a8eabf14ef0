from __future__ import annotations

import base64
import csv
import dataclasses
import errno
import hashlib
import io
import json
import re
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest
from PIL import Image, ImageColor

from maskcon._utils import files
from maskcon._utils.errors import MaskconError
from maskcon.data import ImageSet
from maskcon.report import maps
from maskcon.report.formats import Table
from maskcon.report.maps import THUMBNAIL_CHARACTERS, thumbnail_sheets, tile_for
from maskcon.report.page import Section, part, write_page
from maskcon.report.published import published_recall
from maskcon.report.style import RIGHT, WRONG
from maskcon.report.write import RunRecord, curve_names, settings_tables, write_report
from tests.report.page_samples import EVIL, STRANGE, Reader, inputs, record, sample


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(inputs(), tmp_path_factory.mktemp("report"))


def test_the_page_loads_nothing_from_elsewhere(report: Path) -> None:
    reader = Reader(report.read_text(encoding="utf-8"))
    for tag, attributes in reader.elements:
        for name in ("src", "href", "xlink:href", "srcset", "data", "action", "poster"):
            target = attributes.get(name)
            assert target is None or target.startswith(("data:", "#")), (tag, name, target)
    style = re.search(r"<style>(.*?)</style>", report.read_text(), re.DOTALL)
    assert style is not None
    assert "url(" not in style.group(1)
    assert "@import" not in style.group(1)
    assert "fetch(" not in report.read_text()


def test_names_from_the_data_never_become_markup(report: Path) -> None:
    reader = Reader(report.read_text(encoding="utf-8"))
    assert len(reader.all("script")) == 2  # the data and the program
    assert not any("onerror" in attributes for _, attributes in reader.elements)
    assert EVIL in reader.words  # it stands there as text
    assert reader.all("i") == []


def test_only_the_programs_own_hash_may_run(report: Path) -> None:
    text = report.read_text(encoding="utf-8")
    script = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)[-1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text
    assert "default-src 'none'" in text


def test_names_that_reorder_or_steer_text_are_escaped(tmp_path: Path) -> None:
    evil = "photo\u202egnp.exe\x1b[2J\u2066"
    given = dataclasses.replace(sample(label=evil), coarse_names=["first", evil], ids=[evil] * 30)
    runs = [record("maskcon", 0, label=evil, note=evil)]
    page = write_report(
        inputs(title=evil, runs=runs, sample=given, about=[(evil, evil)], rerun=[(evil, evil)]), tmp_path
    )
    text = page.read_text(encoding="utf-8")
    assert not re.search("[\u202e\x1b\u2066]", text)
    found = re.search(r'id="map-data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    data = json.loads(found.group(1))
    shown = [*data["ids"], *data["colourings"][0]["names"], *(layout["name"] for layout in data["layouts"])]
    assert not re.search("[\u202e\x1b\u2066]", "".join(shown))
    assert "photo\\u202egnp.exe\\x1b[2J" in text


@pytest.mark.parametrize("failing", range(1, 9))
def test_a_failed_write_leaves_old_or_new_files_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    write_report(inputs(sample=None), tmp_path / "here")
    other = inputs(runs=[record("maskcon", 0)], sample=None, title="other")
    write_report(other, tmp_path / "there")
    old, new = (
        {p.name: p.read_bytes() for p in (tmp_path / name).rglob("*.*")} for name in ("here", "there")
    )
    assert len(old) == len(new) == 9  # four tables, two figures as PNG and SVG, the page
    calls = []

    def full(file: BinaryIO) -> None:
        calls.append(file)
        if len(calls) == failing:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "sync_file", full)
    with pytest.raises(MaskconError, match="No space left on device"):
        write_report(other, tmp_path / "here")
    left = {path.name: path.read_bytes() for path in (tmp_path / "here").rglob("*.*")}
    assert left.keys() == old.keys()
    assert all(content in (old[name], new[name]) for name, content in left.items())
    assert sum(left[name] == new[name] != old[name] for name in left) < failing


def test_sections_come_in_order_with_headings_and_alt_texts(report: Path) -> None:
    reader = Reader(report.read_text(encoding="utf-8"))
    sections = [attributes["id"] for attributes in reader.all("section")]
    assert sections == ["about", "results", "curves", "map", "retrieval", "settings", "rerun"]
    assert len(reader.all("h1")) == 1
    assert len(reader.all("h2")) == 7
    assert all(attributes.get("alt") for attributes in reader.all("img"))
    assert all(attributes.get("aria-label") for attributes in reader.all("svg"))
    assert reader.all("html") == [{"lang": "en"}]
    assert any(attributes.get("name") == "viewport" for attributes in reader.all("meta"))


def test_every_identifier_is_unique_and_every_reference_resolves(report: Path) -> None:
    text = report.read_text(encoding="utf-8")
    reader = Reader(text)
    ids = [attributes["id"] for _, attributes in reader.elements if attributes.get("id")]
    assert len(ids) == len(set(ids))
    body = text[text.index("<body>") : text.index("<script")]
    wanted = set(re.findall(r'(?:href="#|url\(#|aria-labelledby="|aria-describedby=")([^")]+)', body))
    assert wanted <= set(ids)


def test_map_data_survive_the_way_into_the_page(report: Path) -> None:
    text = report.read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="map-data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    data = json.loads(found.group(1))
    assert [len(layout["points"]) for layout in data["layouts"]] == [30, 30]
    assert [c["title"] for c in data["colourings"]] == ["Fine label", "Coarse label"]
    assert data["colourings"][0]["names"][0] == EVIL
    assert data["colourings"][0]["labels"] == [i % 6 for i in range(30)]
    assert data["ids"][:6] == [f"{name}/{row}" for row, name in enumerate(STRANGE)]
    assert [sheet["columns"] for sheet in data["sheets"]] == [6]
    assert data["sheets"][0]["uri"].startswith("data:image/png;base64,")
    for layout in data["layouts"]:
        assert [len(row) for row in layout["near"]] == [10] * 30
        assert all(row not in near for row, near in enumerate(layout["near"]))  # nobody is near to oneself
        assert all(row == sorted(row, reverse=True) for row in layout["cosines"])


def test_many_fine_classes_are_coloured_by_their_coarse_class(monkeypatch: pytest.MonkeyPatch) -> None:
    given, drawn = sample(), []
    monkeypatch.setattr(maps, "embedding_map", lambda _points, labels, names, **_: drawn.append(names))
    monkeypatch.setattr(maps, "MOST_CLASSES_IN_COLOUR", 6)
    maps.map_of(given, {}, 0)
    monkeypatch.setattr(maps, "MOST_CLASSES_IN_COLOUR", 5)
    maps.map_of(given, {}, 0)
    assert drawn == [given.fine_names] * 2 + [given.coarse_names] * 2


def test_figures_and_tables_stand_beside_the_page(report: Path) -> None:
    names = {path.name for path in (report.parent / "figures").iterdir()}
    assert {"recall_by_epoch.png", "recall_by_epoch.svg", "loss_by_step.svg"} <= names
    assert sum(name.startswith("map_") for name in names) == 4
    assert sum(name.startswith("retrieval_") for name in names) == 2
    with (report.parent / "tables" / "recall.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    mine = ["mine (bank_size=8)", "mine (bank_size=64)"]
    assert [row[0] for row in rows] == ["Method", "Raw pixels", "SelfCon", "MaskCon", *mine, "SupFINE"]
    stems = {path.stem for path in (report.parent / "tables").iterdir()}
    assert stems == {"recall"}
    assert {path.suffix for path in (report.parent / "tables").iterdir()} == {".txt", ".md", ".tex", ".csv"}


def test_the_same_inputs_give_the_same_page(report: Path, tmp_path: Path) -> None:
    assert write_report(inputs(), tmp_path).read_bytes() == report.read_bytes()


def test_the_summary_names_the_best_and_the_floor(report: Path) -> None:
    text = report.read_text(encoding="utf-8")
    assert "MaskCon is the best of 4 methods trained without fine labels: for 50.00\u00a0%" in text
    assert "raw pixels for 10.00\u00a0%" in text
    assert "of the test images the nearest other image is of the same fine class" in text


def test_the_summary_says_by_which_labels_and_on_which_images(tmp_path: Path) -> None:
    told = {"scored_by": "coarse", "evaluated_on": "validation"}
    run = RunRecord("run", {"method": "maskcon", "recall": {"1": 0.5}, **told}, record("maskcon", 0).journal)
    text = write_report(inputs(runs=[run], sample=sample(fine=False)), tmp_path).read_text("utf-8")
    assert "of the validation images the nearest other image is of the same coarse class" in text
    assert "Recall@1 on the validation images by epoch." in text
    assert "nearest by cosine among the other 29 images." in text


@pytest.mark.parametrize("n", [0, 1, 2])
def test_tiny_samples_and_missing_fine_labels_have_a_page(n: int, tmp_path: Path) -> None:
    given = inputs(sample=sample(n, fine=False) if n else None, runs=[])
    page = write_report(given, tmp_path).read_text(encoding="utf-8")
    assert ('id="map-canvas"' in page) == (n > 0)
    assert "Fine label" not in page


def test_without_fine_labels_the_page_says_what_recall_cannot(tmp_path: Path) -> None:
    told = {"method": "maskcon", "recall": {"1": 0.5}, "scored_by": "coarse"}
    run = RunRecord("run", told, record("maskcon", 0).journal)
    text = write_report(inputs(runs=[run], sample=sample(fine=False)), tmp_path).read_text("utf-8")
    assert (
        "No fine labels are known for these images, so a hit is a neighbour of the same coarse class." in text
    )
    assert "Recall@K by coarse class on the test images" in text
    assert "A hit is a neighbour of the same coarse class." in text
    assert "same fine class" not in text
    assert 'class="tile same"' not in text  # a tick would promise what nobody knows


def test_with_fine_labels_it_does_not(report: Path) -> None:
    text = report.read_text(encoding="utf-8")
    assert "No fine labels are known" not in text
    assert text.count('class="tile same"') + text.count('class="tile other"') == 2 * 3 * 10


def test_a_frozen_run_stands_beside_its_backbone(tmp_path: Path) -> None:
    told = {"raw_pixels": {"1": 0.2}, "frozen_backbone": {"1": 0.4}}
    run = RunRecord("run", {"method": "maskcon", "recall": {"1": 0.5}, **told})
    text = write_report(inputs(runs=[run]), tmp_path).read_text("utf-8")
    assert "by raw pixels for 20.00\u00a0%, by the frozen backbone alone for 40.00\u00a0%." in text
    with (tmp_path / "tables" / "recall.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert [row[:2] for row in rows[1:]] == [
        ["Raw pixels", "20.0"],
        ["Frozen backbone alone", "40.0"],
        ["MaskCon", "50.0"],
    ]


def test_images_that_stand_suspect_labels_are_shown_for_a_single_run(tmp_path: Path) -> None:
    given = sample(several=False, fine=False, label="run")
    embeddings = np.eye(2)[np.asarray(given.coarse)] + np.arange(30)[:, None] / 1000
    embeddings[4] = embeddings[0] * 1.1  # of the second class, among the first
    text = write_report(
        inputs(sample=dataclasses.replace(given, embeddings={"run": embeddings})), tmp_path
    ).read_text("utf-8")
    body = text[text.index("Suspect coarse labels") : text.index('id="settings"')]
    assert body.count("<ol") == 1
    assert "Nearest to a b.jpg/4, " in body


def test_many_thumbnails_stay_within_their_room() -> None:
    noise = np.random.default_rng(0).integers(
        0, 255, (2100, 3, 70, 70), dtype=np.uint8
    )  # the worst to compress
    assert (tile_for(noise), tile_for(noise[:50]), tile_for(noise[:, :, :20, :32])) == (64, 96, 32)
    sheets = thumbnail_sheets(noise, 64)
    assert [sheet["columns"] for sheet in sheets] == [32, 32, 8]
    assert all(sheet["uri"].startswith("data:image/jpeg;base64,") for sheet in sheets)
    assert sum(len(sheet["uri"]) for sheet in sheets) <= THUMBNAIL_CHARACTERS


def test_images_of_several_sizes_are_shown_whole_and_without_margins(tmp_path: Path) -> None:
    canvas = np.zeros((30, 3, 8, 8), dtype=np.uint8)
    canvas[:, :, :4, :8] = 200
    labels, sizes = np.zeros(30, dtype=np.int64), np.array([[4, 8]] * 29 + [[8, 8]], dtype=np.int32)
    part = ImageSet(canvas, labels, None, np.arange(30), sizes)
    pictures = [part.image(row) for row in range(len(part))]
    assert [picture.shape for picture in pictures[-2:]] == [(3, 4, 8), (3, 8, 8)]
    path = write_report(inputs(sample=dataclasses.replace(sample(), images=pictures)), tmp_path)
    grid = min((path.parent / "figures").glob("retrieval_*.png"))
    with Image.open(grid) as picture:
        tile = np.asarray(picture.convert("L"))[
            22 + 4 : 22 + 76, 4:76
        ]  # the first query: a wide image, centred
    assert tile[36].min() == 200
    assert tile[0].max() == tile[-1].max() == 0


def test_neighbours_that_are_all_wrong_have_crosses_in_the_image_too(tmp_path: Path) -> None:
    given = sample(3, several=False, label="run")  # three images of three fine classes
    write_report(inputs(sample=given), tmp_path)
    with Image.open(tmp_path / "figures" / "retrieval_0_run.png") as picture:
        colours = {colour for _, colour in picture.convert("RGB").getcolors(1 << 16) or []}
    assert ImageColor.getrgb(WRONG) in colours
    assert ImageColor.getrgb(RIGHT) not in colours


def test_a_large_neighbour_of_a_small_query_keeps_its_size(tmp_path: Path) -> None:
    given = sample(4, several=False)
    images = [np.full((3, side, side), 90, dtype=np.uint8) for side in (8, 8, 200, 200)]
    given = dataclasses.replace(given, images=images, queries=np.arange(2))
    text = write_report(inputs(sample=given), tmp_path).read_text("utf-8")
    pictures = re.findall(r'<img src="data:image/(?:png|jpeg);base64,([^"]+)"', text)
    widths = {Image.open(io.BytesIO(base64.b64decode(content))).width for content in pictures}
    assert widths == {96}


def test_files_of_an_earlier_page_do_not_pass_for_those_of_this_one(tmp_path: Path) -> None:
    write_report(inputs(), tmp_path)
    (tmp_path / "figures" / "map_of_the_town.png").write_bytes(b"mine")
    assert (tmp_path / "figures" / "map_1_other.png").is_file()
    write_report(inputs(sample=sample(several=False)), tmp_path)
    names = {path.name for part in ("figures", "tables") for path in (tmp_path / part).iterdir()}
    assert not any("other" in name for name in names)
    assert "map_of_the_town.png" in names  # somebody else's


def test_the_page_leaves_other_files_alone(tmp_path: Path) -> None:
    (tmp_path / "p.html.tmp").write_text("of another process")
    write_page(tmp_path / "p.html", "mine")
    assert (tmp_path / "p.html.tmp").read_text() == "of another process"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.html", "p.html.tmp"]


def test_a_name_that_is_not_unicode_does_not_stop_the_page(tmp_path: Path) -> None:
    body = part("table", Table(["a\udcff"], [["b"]]))
    path = write_page(tmp_path / "p.html", "bad \udcff name", sections=[Section("t", "Table", body)])
    assert r"bad \udcff name" in path.read_text(encoding="utf-8")
    assert [file.name for file in tmp_path.iterdir()] == ["p.html"]


def test_runs_that_differ_in_their_seed_alone_become_one_line() -> None:
    runs = [record("maskcon", 0), record("maskcon", 1), record("selfcon", 0)]
    names = {"maskcon0": "MaskCon", "maskcon1": "MaskCon", "selfcon0": "SelfCon"}
    assert curve_names(runs) == names
    other = record("maskcon", 0, label="other", bank_size=128)
    assert curve_names([*runs, other]) == {
        "maskcon0": "maskcon0",
        "maskcon1": "maskcon0",
        "selfcon0": "SelfCon",
        "other": "other",
    }


def test_a_curve_names_the_cross_entropy_beside_its_method() -> None:
    runs = [record("maskcon", 0, label=str(weight), coarse_weight=weight) for weight in (0.0, 0.5)]
    assert curve_names(runs) == {"0.0": "MaskCon", "0.5": "MaskCon + CE"}


def test_settings_are_split_into_shared_and_different() -> None:
    apart, shared = settings_tables([record(m, s) for m in ("maskcon", "selfcon") for s in (0, 1)])
    assert list(apart.columns) == ["Run", "method", "seed"]
    assert apart.rows == [
        ["maskcon0, maskcon1", "maskcon", "0, 1"],
        ["selfcon0, selfcon1", "selfcon", "0, 1"],
    ]
    assert [row[0] for row in shared.rows] == ["bank_size", "note"]
    assert list(shared.columns) == ["Setting", "Value"]


def test_settings_that_differ_are_shown_as_they_are_typed() -> None:
    first = record("maskcon", 0, freeze=True, weights=None)
    apart, _ = settings_tables([first, record("maskcon", 1, freeze=False, weights="imagenet")])
    assert list(apart.columns) == ["Run", "seed", "freeze", "weights"]
    assert apart.rows == [["maskcon0", "0", "yes", "none"], ["maskcon1", "1", "no", "imagenet"]]


def test_settings_tell_where_they_come_from() -> None:
    reasons = {"bank_size": "paper, appendix A", "seed": "given"}
    (table,) = settings_tables([dataclasses.replace(record("maskcon", 0), reasons=reasons)])
    assert list(table.columns) == ["Setting", "Value", "Comes from"]
    assert ["bank_size", "64", "paper, appendix A"] in table.rows
    assert ["note", EVIL, ""] in table.rows


def test_published_recall_rises_with_k_and_gives_the_headline_number() -> None:
    cifar = published_recall("cifar100")
    assert cifar is not None
    assert cifar["maskcon"]["1"] == 0.6552
    assert published_recall("my photographs") is None
    for source in (
        "cifartoy-good",
        "cifartoy-bad",
        "cifar100",
        "imagenet32",
        "sop-split1",
        "sop-split2",
        "cars196",
    ):
        table = published_recall(source)
        assert table is not None
        assert len(table) == 7
        for recall in table.values():
            assert 0 < recall["1"] < recall["2"] < recall["5"] < recall["10"] < 1

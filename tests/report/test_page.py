from __future__ import annotations

import base64
import csv
import dataclasses
import hashlib
import html.parser
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from maskcon.errors import UsageError
from maskcon.report.page import PageMap, write_page
from maskcon.report.published import published_recall
from maskcon.report.run_settings import curve_names, settings_tables
from maskcon.report.tables import Table
from maskcon.report.write import ReportInputs, Sample, write_report
from maskcon.sources import ImageSet

EVIL = "</script><script>document.documentElement.dataset.errors='9'</script><img src=x onerror=alert(1)>\"'&$title"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Reader(html.parser.HTMLParser):
    """Collects what a browser would see of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def journal(method: str, seed: int) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = [
        {
            "kind": "start",
            "folder": f"runs/{seed}",
            "settings": {"method": method, "seed": seed, "bank_size": 64, "note": EVIL},
        }
    ]
    events += [{"kind": "step", "step": s, "epoch": 0, "loss": 3.0 - s / 10} for s in range(1, 9)]
    events += [{"kind": "evaluation", "step": 4 * e, "epoch": e, "recall": {"1": 0.1 * e}} for e in range(3)]
    return [*events, {"kind": "warning", "message": EVIL}, {"kind": "end"}]


def sample(n: int = 30, *, fine: bool = True, label: str = EVIL) -> Sample:
    generator = np.random.default_rng(0)
    kinds = np.arange(n) % 6
    return Sample(
        images=generator.integers(0, 255, (n, 3, 8, 8), dtype=np.uint8),
        coarse=kinds // 3,
        coarse_names=["first", EVIL],
        embeddings={label: generator.normal(size=(n, 5)), "other": generator.normal(size=(n, 3))},
        queries=np.arange(min(3, n)),
        neighbours={label: generator.integers(0, n, (min(3, n), 10))},
        fine=kinds if fine else None,
        fine_names=[EVIL, "b", "c", "d", "e", "日本"] if fine else None,
    )


def inputs(**changes: Any) -> ReportInputs:
    results = [
        {
            "method": method,
            "recall": {"1": r},
            "raw_pixels": {"1": 0.1},
            "seed": seed,
            "source": "x",
            "epochs": 2,
        }
        for method, r in (("selfcon", 0.3), ("maskcon", 0.5), ("supfine", 0.8))
        for seed in (0, 1)
    ]
    journals = {f"{m}-{seed}": journal(m, seed) for m in ("selfcon", "maskcon") for seed in (0, 1)}
    # Short enough to stand whole in a figure, whose SVG repeats it in a comment.
    journals["--><script>x()//\udcff"] = [{"kind": "evaluation", "step": 1, "epoch": 1, "recall": {"1": 0.2}}]
    given: dict[str, Any] = {"title": EVIL, "command": f"maskcon train '{EVIL}'", "results": results}
    return ReportInputs(**(given | {"journals": journals, "sample": sample(), "map_method": "pca"} | changes))


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


def test_sections_come_in_order_with_headings_and_alt_texts(report: Path) -> None:
    reader = Reader(report.read_text(encoding="utf-8"))
    sections = [attributes["id"] for attributes in reader.all("section")]
    assert sections == ["results", "curves", "map", "retrieval", "settings", "rerun"]
    assert len(reader.all("h1")) == 1
    assert len(reader.all("h2")) == 6
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
    assert data["sheet"].startswith("data:image/png;base64,")
    assert data["columns"] == 6


def test_figures_and_tables_stand_beside_the_page(report: Path) -> None:
    names = {path.name for path in (report.parent / "figures").iterdir()}
    assert {"recall_by_epoch.png", "recall_by_epoch.svg", "loss_by_step.svg"} <= names
    assert sum(name.startswith("map_") for name in names) == 4
    assert sum(name.startswith("retrieval_") for name in names) == 1
    with (report.parent / "tables" / "recall.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert [row[0] for row in rows] == ["Method", "Raw pixels", "SelfCon", "MaskCon", "SupFINE"]
    assert {path.suffix for path in (report.parent / "tables").iterdir()} == {".txt", ".md", ".tex", ".csv"}


def test_the_same_inputs_give_the_same_page(report: Path, tmp_path: Path) -> None:
    assert write_report(inputs(), tmp_path).read_bytes() == report.read_bytes()


def test_the_summary_names_the_best_and_the_floor(report: Path) -> None:
    text = report.read_text(encoding="utf-8")
    assert "MaskCon is the best of 2 trained without fine labels: for 50.00\u00a0%" in text
    assert "raw pixels for 10.00\u00a0%" in text
    assert "of the test images the nearest other image is of the same fine class" in text


def test_the_summary_says_by_which_labels_and_on_which_images(tmp_path: Path) -> None:
    told = {"scored_by": "coarse", "evaluated_on": "validation"}
    results = [{"method": "maskcon", "recall": {"1": 0.5}, **told}]
    text = write_report(inputs(results=results, sample=sample(fine=False)), tmp_path).read_text("utf-8")
    assert "of the validation images the nearest other image is of the same coarse class" in text
    assert "Recall@1 on the validation images by epoch." in text
    assert "nearest of the other 29 images of the map." in text


@pytest.mark.parametrize("n", [0, 1, 2])
def test_tiny_samples_and_missing_fine_labels_have_a_page(n: int, tmp_path: Path) -> None:
    given = inputs(sample=sample(n, fine=False) if n else None, journals={}, results=[])
    page = write_report(given, tmp_path).read_text(encoding="utf-8")
    assert ('id="map-canvas"' in page) == (n > 0)
    assert "Fine label" not in page


def test_pictures_of_several_sizes_are_shown_whole_and_without_margins(tmp_path: Path) -> None:
    canvas = np.zeros((30, 3, 8, 8), dtype=np.uint8)
    canvas[:, :, :4, :8] = 200
    labels, sizes = np.zeros(30, dtype=np.int64), np.array([[4, 8]] * 29 + [[8, 8]], dtype=np.int32)
    part = ImageSet(canvas, labels, None, np.arange(30), sizes)
    pictures = [part.picture(row) for row in range(len(part))]
    assert [picture.shape for picture in pictures[-2:]] == [(3, 4, 8), (3, 8, 8)]
    path = write_report(inputs(sample=dataclasses.replace(sample(), images=pictures)), tmp_path)
    (grid,) = (path.parent / "figures").glob("retrieval_*.png")
    with Image.open(grid) as picture:
        tile = np.asarray(picture.convert("L"))[
            22 + 4 : 22 + 76, 4:76
        ]  # the first query: a wide picture, centred
    assert tile[36].min() == 200
    assert tile[0].max() == tile[-1].max() == 0


def test_an_unmatched_sample_is_refused(tmp_path: Path) -> None:
    broken = sample()
    broken = Sample(broken.images[:5], broken.coarse[:5], broken.coarse_names, broken.embeddings)
    with pytest.raises(UsageError, match="30 embeddings for 5 images"):
        write_report(inputs(sample=broken), tmp_path)
    layout = {"m": np.zeros((5, 2))}
    with pytest.raises(UsageError, match="class names"):
        write_page(
            tmp_path / "p.html",
            title="x",
            map_data=PageMap(layout, broken.images, {"c": ([0, 1, 2, 0, 0], ["a", "b"])}),
        )
    with pytest.raises(UsageError, match="shape"):
        write_page(
            tmp_path / "p.html",
            title="x",
            map_data=PageMap({"m": np.zeros((4, 2))}, broken.images, {"c": ([0] * 5, ["a"])}),
        )


def test_a_name_that_is_not_unicode_does_not_stop_the_page(tmp_path: Path) -> None:
    path = write_page(tmp_path / "p.html", title="bad \udcff name", tables=[Table(["a\udcff"], [["b"]])])
    assert "bad ? name" in path.read_text(encoding="utf-8")
    assert [file.name for file in tmp_path.iterdir()] == ["p.html"]


def test_runs_that_differ_in_their_seed_alone_become_one_line() -> None:
    journals = {"a": journal("maskcon", 0), "b": journal("maskcon", 1), "c": journal("selfcon", 0), "d": []}
    assert curve_names(journals) == {"a": "MaskCon", "b": "MaskCon", "c": "SelfCon", "d": "d"}
    journals["b"][0]["settings"]["bank_size"] = 128
    assert curve_names(journals) == {"a": "a", "b": "b", "c": "SelfCon", "d": "d"}
    journals["e"] = journal("maskcon", 2)
    assert curve_names(journals)["e"] == "a"


def test_settings_are_split_into_shared_and_different() -> None:
    apart, shared = settings_tables(
        {f"{m}{s}": journal(m, s) for m in ("maskcon", "selfcon") for s in (0, 1)}
    )
    assert list(apart.columns) == ["Run", "method", "seed"]
    assert apart.rows == [
        ["maskcon0, maskcon1", "maskcon", "0, 1"],
        ["selfcon0, selfcon1", "selfcon", "0, 1"],
    ]
    assert [row[0] for row in shared.rows] == ["bank_size", "note"]


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


def browse(page: str, profile: Path, *flags: str) -> str:
    quiet = [
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-first-run",
    ]
    command = [
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", *quiet, f"--user-data-dir={profile}",
        "--virtual-time-budget=3000", *flags, page,
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
def test_a_browser_runs_the_page_without_an_error(report: Path, tmp_path: Path) -> None:
    dom = browse(f"{report.as_uri()}#point=7", tmp_path / "profile", "--dump-dom")
    root = Reader(dom).all("html")[0]
    assert root["data-ready"] == "true"
    assert root["data-errors"] == "0"
    assert root["data-points"] == "30"
    reader = Reader(dom)
    checkboxes = [attributes for attributes in reader.all("input") if attributes.get("type") == "checkbox"]
    assert len(checkboxes) == 6  # one a fine class
    assert "b, first, image 7" in " ".join(reader.words)  # the chosen point is announced
    card = next(attributes for attributes in reader.all("div") if attributes.get("id") == "map-card")
    assert "hidden" not in card


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
@pytest.mark.parametrize("width", [1100, 390])
def test_a_browser_paints_the_page_at_desk_and_phone_width(report: Path, tmp_path: Path, width: int) -> None:
    shot = tmp_path / "shot.png"
    browse(
        report.as_uri(),
        tmp_path / "p",
        f"--screenshot={shot}",
        f"--window-size={width},2000",
        "--hide-scrollbars",
    )
    with Image.open(shot) as picture:
        assert picture.width == width
        assert len(picture.convert("RGB").getcolors(1 << 24) or []) > 50


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
def test_keys_filter_and_choices_work_in_a_browser(report: Path, tmp_path: Path) -> None:
    actions = """
        const root = document.documentElement, canvas = document.getElementById("map-canvas");
        const seen = {};
        const press = (key) => canvas.dispatchEvent(new KeyboardEvent("keydown", { key, cancelable: true }));
        const card = document.getElementById("map-card");
        press("ArrowRight"); seen.first = document.getElementById("map-spoken").textContent;
        press("ArrowRight"); seen.second = document.getElementById("map-spoken").textContent;
        press("Escape"); seen.closed = card.hidden;
        document.querySelector("#map-list input").click(); seen.filtered = root.dataset.points;
        document.getElementById("map-none").click(); seen.none = root.dataset.points;
        press("ArrowLeft"); seen.nothing = card.hidden;
        document.getElementById("map-all").click(); seen.all = root.dataset.points;
        const colour = document.getElementById("map-colour");
        colour.selectedIndex = 1; colour.dispatchEvent(new Event("change"));
        seen.boxes = document.querySelectorAll("#map-list input").length;
        const layout = document.getElementById("map-layout");
        layout.selectedIndex = 1; layout.dispatchEvent(new Event("change"));
        const box = canvas.getBoundingClientRect();
        canvas.dispatchEvent(new PointerEvent("pointermove", { clientX: box.left - 500, clientY: 0 }));
        seen.away = card.hidden;
        root.dataset.seen = JSON.stringify(seen);
    """
    text = report.read_text(encoding="utf-8")
    text = re.sub(r"<meta http-equiv[^>]*>", "", text).replace(
        "</body>", f"<script>{actions}</script></body>"
    )
    page = tmp_path / "page.html"
    page.write_text(text, encoding="utf-8")
    root = Reader(browse(page.as_uri(), tmp_path / "profile", "--dump-dom")).all("html")[0]
    assert root["data-errors"] == "0"
    seen = json.loads(root["data-seen"] or "{}")
    assert seen.pop("first") != seen.pop("second")
    assert seen == {
        "closed": True,
        "filtered": "25",
        "none": "0",
        "nothing": True,
        "all": "30",
        "boxes": 2,
        "away": True,
    }

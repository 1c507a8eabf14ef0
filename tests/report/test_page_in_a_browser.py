"""The page as people meet it: opened, looked at, pointed at and typed at in a real browser."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maskcon.report.sample import Sample
from maskcon.report.write import write_report
from tests.report.page_samples import inputs, record, sample

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
LARGEST_BYTES, LONGEST_SECONDS = 20_000_000, 2.0  # for 5,000 images
PHONE = {"width": 375, "height": 800}
DARK, LIGHT = "rgb(21, 24, 27)", "rgb(255, 255, 255)"  # --paper

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine"),
]
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(inputs(), tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


@pytest.fixture
def visit(browser: Any) -> Iterator[Open]:
    """Opens a page; at the end nothing may have been said on the console or asked from the network."""
    contexts, said, asked = [], [], []

    def open_page(path: Path, fragment: str = "", **options: Any) -> Any:
        context = browser.new_context(**options)
        contexts.append(context)
        context.set_default_timeout(60_000)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri() + fragment, wait_until="load")
        page.wait_for_function("document.documentElement.dataset.ready === 'true'")
        return page

    yield open_page
    for context in contexts:
        for page in context.pages:
            assert page.evaluate("document.documentElement.dataset.errors") == "0"
        context.close()
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []


def points(page: Any) -> int:
    return int(page.evaluate("document.documentElement.dataset.points"))


def background(page: Any) -> str:
    return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))


def tab_to(page: Any, selector: str) -> None:
    for _ in range(80):
        page.keyboard.press("Tab")
        if page.evaluate("wanted => document.activeElement.matches(wanted)", selector):
            return
    raise AssertionError(f"the Tab key never reaches {selector}")


def point_at_something(page: Any) -> None:
    """Move the mouse over the map until it meets a point."""
    box = page.locator("#map-canvas").bounding_box()
    for y in range(10, int(box["height"]), 24):
        for x in range(10, int(box["width"]), 24):
            page.mouse.move(box["x"] + x, box["y"] + y)
            if page.locator("#map-card").is_visible():
                return
    raise AssertionError("no point anywhere on the map")


def thumbnail_colours(page: Any, selector: str) -> int:
    """How many colours the first canvas of a selector shows, once its image is drawn."""
    page.wait_for_function("s => document.querySelector(s).dataset.drawn !== undefined", arg=selector)
    return int(
        page.evaluate(
            """s => { const c = document.querySelector(s);
            const d = new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer);
            return new Set(d).size; }""",
            selector,
        )
    )


def test_it_opens_with_all_points_and_says_which_one_was_asked_for(visit: Open, report: Path) -> None:
    page = visit(report, "#point=7")
    assert points(page) == 30
    assert page.locator("#map-list input").count() == 6  # one a fine class
    spoken = page.locator("#map-spoken").text_content()
    assert spoken.startswith("b, first, ")
    assert spoken.endswith("/7")
    assert page.locator("#map-card").is_visible()


def test_pointing_shows_a_thumbnail_and_a_click_the_nearest(visit: Open, report: Path) -> None:
    page = visit(report)
    page.locator("#map-canvas").scroll_into_view_if_needed()
    assert page.locator("#map-card").is_hidden()
    point_at_something(page)
    assert thumbnail_colours(page, "#map-thumb") > 10
    page.mouse.down()
    page.mouse.up()
    assert page.locator("#map-near-list li").count() == 11  # the image and its ten nearest
    first = page.locator("#map-near-title").text_content()
    page.locator("#map-near-list button").nth(3).click()
    assert page.locator("#map-near-title").text_content() != first
    page.mouse.move(2, 2)
    assert page.locator("#map-card").is_hidden()


def test_the_keyboard_alone_reaches_everything(visit: Open, report: Path) -> None:
    page = visit(report)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    tab_to(page, "#map-canvas")
    assert page.locator("#map-card").is_visible()  # focus alone shows an image
    assert thumbnail_colours(page, "#map-thumb") > 10
    first = page.locator("#map-spoken").text_content()
    for key in ("ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp"):
        page.keyboard.press(key)
        if page.locator("#map-spoken").text_content() != first:
            break
    assert page.locator("#map-spoken").text_content() != first
    page.keyboard.press("Enter")
    assert page.locator("#map-near-list li").count() == 11
    assert page.locator("#map-spoken").text_content() == "10 nearest shown below the map"
    tab_to(page, "#map-list input")
    page.keyboard.press("Space")
    assert points(page) == 25
    tab_to(page, "#map-near-list button")
    before = page.locator("#map-near-title").text_content()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.locator("#map-near-title").text_content() != before
    tab_to(page, "summary, pre")  # settings, and the command to copy
    page.locator("#map-canvas").focus()
    page.keyboard.press("Escape")
    assert page.locator("#map-near").is_hidden()
    assert page.locator("#map-card").is_hidden()


def test_classes_are_filtered_and_embeddings_chosen(visit: Open, report: Path) -> None:
    page = visit(report)
    page.locator("#map-list input").first.uncheck()
    assert points(page) == 25
    page.locator("#map-none").click()
    assert points(page) == 0
    page.locator("#map-canvas").press("ArrowLeft")
    assert page.locator("#map-card").is_hidden()  # nothing to choose
    page.locator("#map-all").click()
    assert points(page) == 30
    page.locator("#map-colour").select_option("Coarse label")
    assert page.locator("#map-list input").count() == 2
    page.locator("#map-layout").select_option("other")
    assert points(page) == 30
    assert page.locator("#map-find").is_hidden()  # few classes need no search


def test_the_colours_follow_the_system_and_the_switch(visit: Open, report: Path) -> None:
    page = visit(report, color_scheme="dark")
    assert background(page) == DARK
    tab_to(page, "#theme input")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.value") == "light"
    assert background(page) == LIGHT
    page.reload()
    assert background(page) == LIGHT  # remembered
    page = visit(report, color_scheme="light")
    assert background(page) == LIGHT
    page.locator("#theme input[value=dark]").check()
    assert background(page) == DARK
    page.locator("#theme input[value=auto]").check()
    assert background(page) == LIGHT


def test_paper_is_light_whatever_was_chosen_for_the_screen(visit: Open, report: Path) -> None:
    page = visit(report, color_scheme="dark")
    page.locator("#theme input[value=dark]").check()
    assert background(page) == DARK
    page.emulate_media(media="print", color_scheme="dark")
    assert background(page) == LIGHT


def test_a_map_that_is_hidden_for_a_while_is_no_error(visit: Open, report: Path) -> None:
    page = visit(report)
    shown = "shown => { document.querySelector('.map-area').style.display = shown; }"
    for display in ("none", ""):
        page.evaluate(shown, display)
        page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    page.locator("#map-canvas").press("ArrowRight")
    assert page.locator("#map-card").is_visible()


@pytest.mark.parametrize("fine", [True, False])
def test_a_phone_never_scrolls_sideways(visit: Open, tmp_path: Path, fine: bool) -> None:
    page = visit(write_report(inputs(sample=sample(fine=fine)), tmp_path), "#point=5", viewport=PHONE)
    for details in page.locator("details").all():
        details.evaluate("element => element.open = true")
    too_wide = """width => [...document.querySelectorAll('body *')].filter(
        e => !e.closest('.scroll, svg, .skip, .unseen') && e.getBoundingClientRect().right > width + 1
        ).map(e => e.outerHTML.slice(0, 60))"""
    assert page.evaluate(too_wide, PHONE["width"]) == []
    widths = page.evaluate("[document.documentElement.scrollWidth, document.body.scrollWidth]")
    assert max(widths) <= PHONE["width"]
    assert page.locator("#map-near-list li").first.is_visible()
    # what is wider than the phone scrolls in its own box, which the Tab key reaches
    assert page.evaluate(
        "[...document.querySelectorAll('.scroll')].every(b => b.scrollWidth <= b.clientWidth + 1 || b.tabIndex === 0)"
    )


def test_a_class_can_be_searched_where_there_are_many(visit: Open, tmp_path: Path) -> None:
    given = dataclasses.replace(
        sample(60), fine=np.arange(60) // 2, fine_names=[f"kind {k}" for k in range(30)]
    )
    page = visit(write_report(inputs(sample=given), tmp_path))
    page.locator("#map-find").fill("Kind 2")
    assert page.locator("#map-list label:visible").count() == 11  # 2 and 20 to 29


def five_thousand() -> Sample:
    """Images of 96 x 96 pixels, soft shapes with some noise, of ten kinds in four coarse classes."""
    generator = np.random.default_rng(0)
    count, side = 5000, 96
    fine = np.arange(count) % 10
    soft = generator.integers(0, 256, (count, 3, side // 12, side // 12), dtype=np.uint8)
    images = soft.repeat(12, axis=2).repeat(12, axis=3)
    images = images // 2 + generator.integers(0, 60, images.shape, dtype=np.uint8)
    return Sample(
        images=images,
        coarse=fine // 3,
        coarse_names=["one", "two", "three", "four"],
        embeddings={"MaskCon": generator.normal(size=(10, 64))[fine] + generator.normal(size=(count, 64))},
        queries=np.arange(10),
        fine=fine,
        fine_names=[f"kind {k}" for k in range(10)],
        ids=[f"photographs/of some kind/number {row:05d}.jpg" for row in range(count)],
    )


def test_five_thousand_images_fit_and_open_quickly(visit: Open, tmp_path: Path) -> None:
    report = write_report(inputs(sample=five_thousand(), runs=[record("maskcon", 0)]), tmp_path)
    assert report.stat().st_size < LARGEST_BYTES
    page = visit(write_report(inputs(sample=None), tmp_path / "small"))
    session = page.context.new_cdp_session(page)
    # the processor's time, which a busy machine does not change
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    seconds = []
    for _ in range(2):
        before = spent(session)
        page.goto(report.as_uri(), wait_until="load")
        page.wait_for_function("document.documentElement.dataset.points === '5000'")
        now = spent(session)
        seconds.append(now - before if now >= before else now)
    print(json.dumps({"bytes": report.stat().st_size, "main thread seconds": seconds}))
    assert 0 < min(seconds) < LONGEST_SECONDS
    page.locator("#map-canvas").scroll_into_view_if_needed()
    point_at_something(page)
    assert thumbnail_colours(page, "#map-thumb") > 100


def spent(session: Any) -> float:
    metrics = session.send("Performance.getMetrics")["metrics"]
    return float(next(item["value"] for item in metrics if item["name"] == "TaskDuration"))

"""The explorer as people meet it: a real server, a real browser, images to name, search and take away."""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.app.serving import Served
from tests.cli.commands import QUICK, maskcon

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
AXE = os.environ.get("MASKCON_AXE")  # axe.min.js of the npm package axe-core
HOSTILE = "<img src=x onerror=alert(1)>"  # also a folder's name
COLOURS = {"apple": [(200, 30, 30), (40, 170, 50), (230, 210, 60)], HOSTILE: [(20, 20, 160), (240, 240, 240)]}
PER_KIND = 30
VIEWS = ("#kinds", "#map", "#search", "#check/outliers", "#ask")
CONTENT = {  # what a view shows when it waits for nothing more
    "kinds": ".kind, .tile",
    "map": ".place, .thumb",
    "search": ".drop, .tile",
    "check": ".question, .empty h2",
    "ask": ".question, .empty h2",
}
WAIT_MS = 120_000  # a busy machine is slow, not wrong
PHONE = {"width": 390, "height": 800}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine"),
]
Visit = Callable[..., Any]


def draw(path: Path, colour: tuple[int, int, int], seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).integers(-15, 15, (24, 24, 3))
    Image.fromarray((np.array(colour) + noise).clip(0, 255).astype(np.uint8)).save(path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with photos, a run trained on them, and its kinds."""
    pytest.importorskip("fastapi")
    place = tmp_path_factory.mktemp("explorer")
    for coarse, colours in COLOURS.items():
        for number in range(PER_KIND * len(colours)):
            kind = number % len(colours)
            draw(place / "photos" / coarse / f"{kind}-{number:03}.png", colours[kind], number)
    small = [*QUICK, "--method", "maskcon", "--set", "image_size=16", "--device", "cpu", "--threads", "1"]
    done = maskcon("train", "photos", *small, "-o", "run", cwd=place)
    assert done.returncode == 0, done.stderr
    done = maskcon("kinds", "run", "--kinds", "apple=3", "--kinds", f"{HOSTILE}=2", cwd=place)
    assert done.returncode == 0, done.stderr
    return place


@pytest.fixture
def place(trained: Path, tmp_path: Path) -> Path:
    """The same, for one test to edit."""
    shutil.copytree(trained, tmp_path / "place")
    return tmp_path / "place"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


@pytest.fixture
def served(place: Path) -> Iterator[Served]:
    running = Served(place / "run", str(place / "photos"))
    yield running
    running.process.kill()
    running.process.wait()


@pytest.fixture
def visit(browser: Any) -> Iterator[Visit]:
    """Opens the explorer; at the end no script may have failed and nothing may have been asked from elsewhere."""
    contexts, failed, asked = [], [], []

    def open_page(served: Served, fragment: str = "", context: Any = None, **options: Any) -> Any:
        context = context or browser.new_context(**options)
        contexts.append(context)
        context.set_default_timeout(WAIT_MS)
        page = context.new_page()
        page.on("pageerror", lambda error: failed.append(str(error)))
        page.on("dialog", lambda dialog: failed.append(f"dialog {dialog.message}"))
        page.on("console", lambda message: failed.append(message.text) if "Policy" in message.text else None)
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"http://127.0.0.1:{served.port}/?token={served.token}")
        page.wait_for_selector("html[data-ready=true]")
        if fragment:
            page.goto(f"http://127.0.0.1:{served.port}/{fragment}")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert failed == []
    assert [url for url in asked if not re.match(r"http://127\.0\.0\.1:|data:|blob:", url)] == []


def kinds_of(served: Served, coarse: str = "apple") -> dict[str, int]:
    group = next(one for one in served.json("/api/state")["classes"] if one["name"] == coarse)
    return {kind["name"]: kind["size"] for kind in group["kinds"]}


def field(page: Any, kind: str, coarse: str = "apple") -> Any:
    return page.get_by_label(f"Name of {kind} of {coarse}", exact=True)


def name(page: Any, kind: str, to: str) -> None:
    field(page, kind).fill(to)
    field(page, kind).press("Enter")
    page.locator("#toasts .toast", has_text=to).first.wait_for()


def saved(page: Any) -> None:
    page.locator("#status.good").wait_for()


def settle(page: Any, fragment: str) -> None:
    """Wait until a view shows its content."""
    view = re.split("[/?]", fragment.lstrip("#"))[0]
    page.locator(f"#{view}").locator(CONTENT[view]).locator("visible=true").first.wait_for()


def test_kinds_are_named_merged_split_and_undone(served, visit):
    page = visit(served)
    name(page, "kind 1", "Gala")
    saved(page)
    assert kinds_of(served)["Gala"] == PER_KIND
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Name of kind 2 of apple"
    page.locator("#kinds .progress-text", has_text="1 of 5").wait_for()

    # merge by the dialog, with keys only
    page.get_by_label("Merge kind 2 with another kind").first.press("Enter")
    page.get_by_label("Name of the kind", exact=True).press_sequentially("gal")
    page.keyboard.press("Enter")
    field(page, "kind 2").wait_for(state="detached")
    assert kinds_of(served)["Gala"] == 2 * PER_KIND

    page.get_by_label("Split Gala").press("Enter")
    page.get_by_role("button", name="Into 2").press("Enter")
    page.locator("#toasts .toast", has_text="plit").first.wait_for()
    assert len(kinds_of(served)) == 3

    page.locator("body").press("Control+z")
    page.locator("#toasts .toast", has_text="Undone").first.wait_for()
    assert kinds_of(served)["Gala"] == 2 * PER_KIND
    page.keyboard.press("Control+z")
    field(page, "kind 2").wait_for()
    page.keyboard.press("Control+Shift+z")
    field(page, "kind 2").wait_for(state="detached")
    assert kinds_of(served)["Gala"] == 2 * PER_KIND


def test_a_kind_is_dragged_onto_another(served, visit):
    page = visit(served)
    first, second = page.locator("article.kind").nth(0), page.locator("article.kind").nth(1)
    first.hover()
    first.locator(".grip").drag_to(second)
    page.locator("#toasts .toast", has_text="erged").first.wait_for()
    assert sorted(kinds_of(served).values()) == [PER_KIND, 2 * PER_KIND]


def test_images_of_a_kind_are_selected_by_keys_and_moved(served, visit):
    page = visit(served, "#kinds/apple/kind%201")
    grid = page.get_by_role("listbox", name="Images of kind 1")
    grid.get_by_role("option").first.wait_for()
    grid.focus()
    page.keyboard.press("Space")
    for _ in range(4):
        page.keyboard.press("Shift+ArrowRight")
    page.get_by_text("5 selected").wait_for()
    assert page.get_by_role("option", selected=True).count() == 5
    page.locator("#dock").get_by_role("button", name="Move to").press("Enter")
    page.keyboard.type("Windfall")
    page.keyboard.press("Enter")
    page.locator("#toasts .toast", has_text="Windfall").first.wait_for()
    assert kinds_of(served)["Windfall"] == 5
    assert page.locator("#dock").is_hidden()


def test_junk_is_marked_by_one_key_and_taken_back(served, visit):
    page = visit(served, "#kinds/apple/kind%201")
    grid = page.get_by_role("listbox", name="Images of kind 1")
    grid.get_by_role("option").first.wait_for()
    grid.focus()
    page.keyboard.press("Enter")  # the image, large
    page.locator("dialog img.large").wait_for()
    page.keyboard.press("j")
    page.locator("dialog").get_by_role("button", name="Not junk").wait_for()
    assert sum(kinds_of(served).values()) == 3 * PER_KIND - 1
    page.keyboard.press("j")
    page.locator("dialog").get_by_role("button", name="Junk", exact=True).wait_for()
    assert sum(kinds_of(served).values()) == 3 * PER_KIND


def wait_for_points(page: Any) -> Any:
    stage = page.locator("#map .stage")
    stage.locator(".place, .thumb").first.wait_for()
    return stage


@pytest.mark.parametrize("tool", ["lasso", "rect"])
def test_images_on_the_map_are_selected_by_hand(served, visit, tool):
    page = visit(served, "#map")
    box = wait_for_points(page).bounding_box()
    page.keyboard.press({"lasso": "l", "rect": "r"}[tool])
    left, top = box["x"] + 8, box["y"] + 60
    right, bottom = box["x"] + box["width"] - 8, box["y"] + box["height"] - 8
    page.mouse.move(left, top)
    page.mouse.down()
    corners = [(right, top), (right, bottom), (left, bottom)] if tool == "lasso" else [(right, bottom)]
    for corner in corners:
        page.mouse.move(*corner, steps=4)
    page.mouse.up()
    images = served.json("/api/state")["images"]
    page.get_by_text(f"{images} selected").wait_for()
    page.locator("#map .chip", has_text="apple / kind 1").click()  # keep one kind of them
    page.get_by_text(f"{PER_KIND} selected").wait_for()
    page.keyboard.press("m")
    page.keyboard.type("By hand")
    page.keyboard.press("Enter")
    page.locator("#toasts .toast", has_text="By hand").first.wait_for()
    assert kinds_of(served)["By hand"] == PER_KIND


def test_the_map_is_worked_by_keys(served, visit):
    page = visit(served, "#map")
    stage = wait_for_points(page)
    stage.focus()
    for key in ("-", "-", "-", "ArrowLeft", "ArrowRight"):
        page.keyboard.press(key)
    page.keyboard.press("Enter")
    page.locator("#dock").get_by_text(re.compile("selected")).wait_for()
    assert page.locator("#map .panel").is_visible()
    page.keyboard.press("Escape")
    page.locator("#dock").wait_for(state="hidden")


DROP = """([name, bytes]) => {
  const data = new DataTransfer();
  data.items.add(new File([new Uint8Array(bytes)], name, {type: 'image/png'}));
  document.body.dispatchEvent(new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true}));
}"""


def test_a_dropped_file_finds_itself(place, served, visit):
    page = visit(served)
    file = place / "photos" / "apple" / "1-001.png"
    page.evaluate(DROP, [file.name, list(file.read_bytes())])
    results = page.get_by_role("listbox", name="Results, the most alike first")
    first = results.get_by_role("option").first
    first.wait_for()
    number = int(first.get_attribute("data-id"))
    (image,) = served.json(f"/api/images?ids={number}")["images"]
    assert image["path"] == "apple/1-001.png"
    assert float(first.locator(".caption").inner_text()) > 0.99


def test_search_goes_by_likes_and_dislikes_within_a_class(served, visit):
    page = visit(served, "#search?pos=0&neg=1&coarse=apple")
    results = page.get_by_role("listbox", name="Results, the most alike first")
    results.get_by_role("option").first.wait_for()
    labels = [option.get_attribute("aria-label") for option in results.get_by_role("option").all()]
    assert labels
    assert all(": apple, " in label for label in labels)
    page.get_by_label("Only of this class").select_option("")
    page.get_by_label("Remove image 1", exact=True).press("Enter")
    page.wait_for_url(re.compile(r"#search\?pos=0$"))
    results.locator(f'[aria-label*="{HOSTILE}"]').first.wait_for()


def test_two_tabs_see_each_other_and_typed_text_stays(served, visit):
    one = visit(served)
    two = visit(served, context=one.context)
    field(two, "kind 2").fill("half a na")
    name(one, "kind 1", "Gala")
    field(two, "Gala").wait_for()
    assert field(two, "kind 2").input_value() == "half a na"
    two.reload()
    field(two, "kind 2").wait_for()
    assert field(two, "kind 2").input_value() == "half a na"


def test_a_killed_server_loses_nothing(place, served, visit):
    page = visit(served)
    name(page, "kind 1", "Gala")
    served.process.send_signal(signal.SIGKILL)
    served.process.communicate()
    field(page, "kind 2").fill("Braeburn")
    field(page, "kind 2").press("Enter")
    page.locator("#problem", has_text="does not answer").wait_for()
    page.locator("#status.bad", has_text="1 edit waiting").wait_for()
    again = Served(place / "run", str(place / "photos"), "--port", str(served.port))
    try:
        page.locator("#problem", has_text="was restarted").wait_for()
        visit(again, context=page.context)  # its address, opened in the same browser
        saved(page)
        page.locator("#problem").wait_for(state="hidden")
        assert {"Gala", "Braeburn"} <= kinds_of(again).keys()
    finally:
        again.process.kill()
        again.process.communicate()


def test_an_answer_that_breaks_off_is_requested_again(served, visit):
    page = visit(served)
    page.evaluate("""() => {
        const whole = Response.prototype.arrayBuffer;
        let left = 3;
        Response.prototype.arrayBuffer = function () {
            return (left -= 1) < 0 ? whole.call(this) : Promise.reject(new TypeError("network error"));
        };
    }""")
    name(page, "kind 1", "Gala")
    field(page, "Gala").wait_for()
    page.locator("#problem").wait_for(state="hidden")


def test_what_is_taken_away_is_read_by_the_command_line(place, served, visit):
    page = visit(served)
    name(page, "kind 1", "=Gala, red")
    page.keyboard.press("Escape")
    page.locator("body").press("e")
    with page.expect_download() as started:
        page.locator("dialog .way", has_text="kinds.csv").get_by_role("link").click()
    edited = place / "edited.csv"
    started.value.save_as(edited)
    rows = list(csv.DictReader(io.StringIO(edited.read_text("utf-8-sig"), newline="")))
    assert sum(row["kind"].endswith("=Gala, red") for row in rows) == PER_KIND
    assert "maskcon train" in page.locator("dialog .command code").inner_text()
    page.keyboard.press("Escape")
    served.end()
    done = maskcon("kinds", "run", "photos", "-o", "other", cwd=place)
    assert done.returncode == 0, done.stderr
    done = maskcon("kinds", "run", "photos", "-o", "other", "--names", "edited.csv", cwd=place)
    assert done.returncode == 0, done.stderr
    assert "=Gala, red" in done.stdout
    small = [*QUICK, "--method", "maskcon", "--set", "image_size=16", "--device", "cpu", "--threads", "1"]
    done = maskcon("train", "photos", "--fine", "edited.csv", *small, "-o", "named", cwd=place)
    assert done.returncode == 0, done.stderr
    assert "1 kind named" in done.stderr + done.stdout


@pytest.mark.parametrize("fragment", VIEWS)
def test_hostile_names_are_text(served, visit, fragment):
    served.json(
        "/api/edits", {"action": "rename", "coarse": HOSTILE, "kind": "kind 1", "to": f"\u202e{HOSTILE}'\"`"}
    )
    page = visit(served, fragment)
    settle(page, fragment)
    assert "\u202e" not in page.locator("body").inner_text()
    assert page.locator("img[src=x]").count() == 0
    assert page.evaluate("document.scripts.length") == 1
    if fragment == "#kinds":
        assert page.locator("h2", has_text=HOSTILE).count() == 1


def test_the_queue_of_outliers_is_gone_through_by_keys(place, visit):
    draw(place / "photos" / "apple" / "odd.png", (0, 0, 0), 0)
    running = Served(place / "run", str(place / "photos"))
    try:
        page = visit(running, "#check/outliers")
        page.locator("#check .question").wait_for()
        before = page.locator("#check .progress-text").inner_text()
        assert before.startswith("1 of ")
        page.keyboard.press("j")
        page.locator("#toasts .toast").first.wait_for()
        page.locator("#check .progress-text").filter(has_not_text="1 of ").wait_for()
        assert sum(group["junk"] for group in running.json("/api/state")["classes"]) == 1
        page.keyboard.press("u")
        page.locator("#toasts .toast", has_text="Undone").first.wait_for()
        assert sum(group["junk"] for group in running.json("/api/state")["classes"]) == 0
    finally:
        running.process.kill()
        running.process.communicate()


def test_questions_are_answered_by_number_and_by_name(served, visit):
    name(visit(served), "kind 1", "Gala")
    page = visit(served, "#ask")
    page.locator("#ask .question").wait_for()
    answers = page.locator("#ask .ask-choice .choice-name").all_inner_texts()
    revision = served.json("/api/state")["revision"]
    page.keyboard.press("t")
    page.keyboard.type("Windfall")
    page.keyboard.press("Enter")
    page.locator("#toasts .toast", has_text="Windfall").first.wait_for()
    assert served.json("/api/state")["revision"] == revision + 1
    assert page.locator("#ask .progress-text").inner_text().startswith("2 of ")
    assert answers
    page.keyboard.press("1")  # the kind that it is in
    page.locator("#toasts .toast", has_text="Kept 1 image").first.wait_for()
    page.locator("#ask .progress-text", has_text="3 of ").wait_for()
    assert served.json("/api/state")["revision"] == revision + 2
    page.get_by_role("button", name="Let others follow").press("Enter")
    page.locator("#toasts .toast", has_text="Took over answers").first.wait_for()
    page.locator("#ask .progress-text", has_text="1 of ").wait_for()


def test_a_rejected_suggestion_is_gone_from_every_tab_until_undone(place, visit):
    running = Served(place / "run", str(place / "photos"))
    try:
        images = running.json("/api/kind?coarse=apple&kind=kind%201")["images"]
        ids = [image["id"] for image in images]
        running.json("/api/edits", {"action": "move", "ids": ids[::2], "to": "Gala"})
        one = visit(running)
        two = visit(running, context=one.context)
        offer = "#kinds .offer"
        two.locator(offer).wait_for()
        one.locator(offer).get_by_role("button", name="Reject").press("Enter")
        one.locator("#toasts .toast", has_text="not in Gala").wait_for()
        for page in (one, two):
            page.locator(offer).wait_for(state="detached")
        two.get_by_role("button", name="Undo").first.press("Enter")
        for page in (one, two):
            page.locator(offer).wait_for()
    finally:
        running.process.kill()
        running.process.communicate()


def test_an_opened_kind_shows_all_of_its_images(served, visit):
    page = visit(served, "#kinds/apple/kind%201")
    page.get_by_role("option").first.wait_for()
    shown = [
        int(re.findall(r"\((\d+)\)", text)[0]) for text in page.locator(".grid-heading").all_inner_texts()
    ]
    assert sum(shown) == PER_KIND
    assert page.locator(".grid-heading", has_text="In between").count() == 1


def test_folders_are_written_from_the_page(place, served, visit):
    page = visit(served)
    name(page, "kind 1", "Gala")
    page.keyboard.press("Escape")  # out of the next name
    page.keyboard.press("e")
    way = page.locator("dialog .way", has_text="One folder per class")
    way.get_by_role("button", name="Write").press("Enter")
    told = way.get_by_role("status")
    told.get_by_text(re.compile(r"images? in ")).wait_for()
    written = Path(told.inner_text().split(" in ", 1)[1])
    assert len(list((place.parent / written).glob("apple/Gala/*.png"))) == PER_KIND


def test_the_map_is_drawn_without_webgl(served, visit, browser):
    context = browser.new_context()
    context.add_init_script("""
        const get = HTMLCanvasElement.prototype.getContext;
        HTMLCanvasElement.prototype.getContext = function (kind, ...rest) {
          return kind === 'webgl2' ? null : get.call(this, kind, ...rest);
        };""")
    page = visit(served, "#map", context)
    wait_for_points(page)
    inked = """() => {
      const canvas = document.querySelector('#map canvas');
      const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
      return data.filter((value, place) => place % 4 === 3 && value > 0).length;
    }"""
    end = time.monotonic() + WAIT_MS / 1000
    while page.evaluate(inked) <= 100:  # wait_for_function needs an eval that the page forbids
        assert time.monotonic() < end
        time.sleep(0.1)


def test_views_are_reached_by_keys_and_keys_are_listed(served, visit):
    page = visit(served)
    for key, view in (("m", "map"), ("s", "search"), ("c", "check"), ("a", "ask"), ("k", "kinds")):
        page.locator("body").press("g")
        page.keyboard.press(key)
        page.locator(f"#{view}").wait_for()
        assert page.locator(f"#to-{view}").get_attribute("aria-current") == "page"
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys")
    assert dialog.get_by_text("Undo").count() == 1
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="detached")  # not its role: that is gone before the focus has moved
    page.keyboard.press("n")
    page.locator("[aria-label*='Name of kind 1']:focus").first.wait_for()


@pytest.mark.parametrize("fragment", VIEWS)
def test_a_phone_needs_no_sideways_scrolling(served, visit, fragment):
    page = visit(served, fragment, viewport=PHONE)
    settle(page, fragment)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    outside = """() => [...document.querySelectorAll('main .view:not([hidden]) .button, .top .button, .views a')]
      .filter((node) => node.offsetParent && (node.getBoundingClientRect().right > innerWidth + 1)).length"""
    assert page.evaluate(outside) == 0


@pytest.mark.skipif(AXE is None, reason="MASKCON_AXE does not name axe.min.js of axe-core")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_violation(served, visit, scheme):
    page = visit(served, color_scheme=scheme)
    page.evaluate(Path(str(AXE)).read_text("utf-8"))
    served.json("/api/edits", {"action": "rename", "coarse": "apple", "kind": "kind 1", "to": "Gala"})
    found = []
    for fragment in (*VIEWS, "#kinds/apple/Gala", "#search?pos=0,1&neg=2", "#check/duplicates"):
        page.evaluate(f"location.hash = '{fragment}'")
        settle(page, fragment)
        found += [(fragment, *violation) for violation in violations(page)]
    page.evaluate("location.hash = '#kinds/apple/Gala'")
    page.get_by_role("listbox", name="Images of Gala").get_by_role("option").first.wait_for()
    for opening, key in (("image", "Enter"), ("keys", "?"), ("out", "e")):
        page.get_by_role("listbox", name="Images of Gala").focus()
        page.keyboard.press(key)
        page.locator("dialog").wait_for()
        found += [(opening, *violation) for violation in violations(page)]
        page.keyboard.press("Escape")
    page.get_by_role("listbox", name="Images of Gala").focus()
    page.keyboard.press("Space")
    page.keyboard.press("m")
    page.locator("dialog").wait_for()
    found += [("move", *violation) for violation in violations(page)]
    assert found == []


def violations(page: Any) -> list[tuple[str, str]]:
    result = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    return [
        (found["id"], found["nodes"][0]["html"][:200])
        for found in result["violations"]
        if found["impact"] in ("serious", "critical")
    ]

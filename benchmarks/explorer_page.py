"""Measure the explorer's page in Chromium: its speed, and a scripted walk from found kinds to named ones.

    maskcon explore RUN --no-browser          # prints an address; in another terminal:
    python benchmarks/explorer_page.py speed ADDRESS
    python benchmarks/explorer_page.py walk ADDRESS [--classes 10]

speed   seconds until the first thumbnails are there, in a fresh browser; frames per second while the map is dragged,
        without a graphics card (SwiftShader)
walk    names every kind of the largest classes by keys alone. The name is the most frequent fine label of the eight
        typical images, as a person who knows the things would say; the fine label is the folder that an image lies in.
        Told: clicks, keys, seconds, and the share of images whose name is their fine label. It edits the run: give it a
        copy.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections import Counter
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Page, ViewportSize, sync_playwright

WINDOW: ViewportSize = {"width": 1366, "height": 768}
KEY_MS = 80  # between two keys, as a quick typist
IMAGES_AT_ONCE = 400
DRAG = """async () => {
  const stage = document.querySelector('#map .stage');
  const box = stage.getBoundingClientRect();
  const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
  stage.setPointerCapture = () => {};  // these pointers are not real ones
  const send = (type, dx, dy) => stage.dispatchEvent(new PointerEvent(type,
    {pointerId: 1, clientX: x + dx, clientY: y + dy, button: 0, bubbles: true}));
  send('pointerdown', 0, 0);
  const gaps = [];
  const start = performance.now();
  const frames = Number(document.querySelector('#map').dataset.frames);
  for (let before = start; before - start < 5000;) {
    await new Promise((resolve) => requestAnimationFrame(resolve));
    const now = performance.now();
    gaps.push(now - before);
    before = now;
    send('pointermove', 500 * Math.sin((now - start) / 700), 200 * Math.cos((now - start) / 500));
  }
  const seconds = (performance.now() - start) / 1000;
  send('pointerup', 0, 0);
  const drawn = Number(document.querySelector('#map').dataset.frames) - frames;
  gaps.sort((a, b) => a - b);
  return {frames_per_second: drawn / seconds, slowest_tenth_ms: gaps[Math.floor(0.9 * gaps.length)]};
}"""
COUNT = """() => {
  window.counted = {clicks: 0, keys: 0};
  addEventListener('click', () => { window.counted.clicks += 1; }, true);
  addEventListener('keydown', () => { window.counted.keys += 1; }, true);
}"""


def measure_speed(page: Page, address: str) -> dict[str, Any]:
    """Open the page, then drag the map."""
    start = time.perf_counter()
    page.goto(address)
    page.wait_for_selector("html[data-ready=true]")
    page.locator(".face img").first.wait_for()
    while not page.evaluate("document.querySelector('.face img').complete"):
        time.sleep(0.01)
    usable = time.perf_counter() - start
    page.evaluate("location.hash = '#map'")
    page.locator("#map .overlay > *").first.wait_for(timeout=120_000)
    while page.locator(".map-note").inner_text():  # the final map is still being computed
        time.sleep(1)
    time.sleep(1)
    return {"images": read(page, "state")["images"], "usable_seconds": usable, **page.evaluate(DRAG)}


def read(page: Page, path: str) -> Any:
    """Ask the server, beside the page."""
    answer = page.request.get(f"{urlsplit(page.url).scheme}://{urlsplit(page.url).netloc}/api/{path}")
    return answer.json()


def fine_labels(page: Page, ids: list[int]) -> dict[int, str]:
    """Return the folder that each image lies in."""
    labels = {}
    for start in range(0, len(ids), IMAGES_AT_ONCE):
        some = ",".join(map(str, ids[start : start + IMAGES_AT_ONCE]))
        for image in read(page, f"images?ids={some}")["images"]:
            labels[image["id"]] = PurePosixPath(image["path"]).parent.name
    return labels


def largest(page: Page, classes: int) -> list[dict[str, Any]]:
    """Return the largest classes, as the page orders them."""
    groups = read(page, "state")["classes"]
    return sorted(groups, key=lambda group: -group["images"])[:classes]


def walk(page: Page, address: str, classes: int) -> dict[str, Any]:
    """Name the kinds of the largest classes, field by field."""
    page.goto(address)
    page.wait_for_selector("html[data-ready=true]")
    groups = largest(page, classes)
    typical = [row for group in groups for kind in group["kinds"] for row in kind["typical"]]
    truth = fine_labels(page, typical)
    kinds = sum(len(group["kinds"]) for group in groups)
    page.evaluate(COUNT)
    start = time.perf_counter()
    page.keyboard.press("n")
    for group in groups:
        for kind in group["kinds"]:
            field = page.get_by_label(f"Name of {kind['name']} of {group['name']}", exact=True)
            assert field.evaluate("node => node === document.activeElement"), kind
            name = Counter(truth[row] for row in kind["typical"]).most_common(1)[0][0]
            page.keyboard.type(name, delay=KEY_MS)
            page.keyboard.press("Enter")
    page.locator("#status.good").wait_for()
    seconds = time.perf_counter() - start
    counted = page.evaluate("window.counted")
    right = images = 0
    found, wanted = set(), set()
    for group in largest(page, classes):
        for kind in group["kinds"]:
            rows = [row["id"] for row in page_kind(page, group["name"], kind["name"])]
            labels = fine_labels(page, rows)
            right += sum(label == kind["name"] for label in labels.values())
            images += len(rows)
            found.add((group["name"], kind["name"]))
            wanted |= {(group["name"], label) for label in labels.values()}
    return {
        "classes": classes,
        "kinds": kinds,
        **counted,
        "seconds": seconds,
        "images": images,
        "right": right / images,
        "fine_labels": len(wanted),
        "named": len(found & wanted),
    }


def page_kind(page: Page, coarse: str, kind: str) -> list[dict[str, Any]]:
    """Return the images of a kind."""
    answer = page.request.get(
        f"http://{urlsplit(page.url).netloc}/api/kind", params={"coarse": coarse, "kind": kind}
    )
    images: list[dict[str, Any]] = answer.json()["images"]
    return images


def main() -> None:
    """Run one of the two and print JSON."""
    parser = argparse.ArgumentParser(description="Measure the explorer's page.")
    parser.add_argument("what", choices=["speed", "walk"])
    parser.add_argument("address", help="as `maskcon explore` prints it, token included")
    parser.add_argument("--classes", type=int, default=10)
    options = parser.parse_args()
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport=WINDOW)
        speed = options.what == "speed"
        result = (
            measure_speed(page, options.address) if speed else walk(page, options.address, options.classes)
        )
        browser.close()
    print(json.dumps({key: round(value, 3) for key, value in result.items()}))


if __name__ == "__main__":
    main()

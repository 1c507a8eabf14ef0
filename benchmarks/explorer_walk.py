"""A scripted walk in the explorer, from found kinds to named ones: how many keys, how long, how right.

    python benchmarks/explorer_walk.py RUN [--classes 10]

Names every kind of the largest classes by keys alone, in a copy of the run. The name is the most frequent fine label of
the eight typical images, as a person who knows the things would say; the fine label is the folder that an image lies
in. Prints clicks, keys, seconds, and the share of images whose name is their fine label.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Page, sync_playwright

from explorer import WINDOW, Client
from maskcon.report.formats import Table

KEY_MS = 80  # between two keys, as a quick typist
IMAGES_AT_ONCE = 400
COUNT = """() => {
  window.counted = {clicks: 0, keys: 0};
  addEventListener('click', () => { window.counted.clicks += 1; }, true);
  addEventListener('keydown', () => { window.counted.keys += 1; }, true);
}"""


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


def walk(page: Page, address: str, classes: int) -> list[tuple[str, str]]:
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
    return [
        ("kinds named", f"{kinds}, in {classes} classes of {len(wanted)} fine labels"),
        ("clicks, keys", f"{counted['clicks']}, {counted['keys']}"),
        (f"time at {KEY_MS} ms per key, without thinking", f"{seconds:.0f} s"),
        ("fine labels that have a kind of their name", str(len(found & wanted))),
        ("images whose name is their fine label", f"{100 * right / images:.1f} % of {images:,}"),
    ]


def page_kind(page: Page, coarse: str, kind: str) -> list[dict[str, Any]]:
    """Return the images of a kind."""
    answer = page.request.get(
        f"http://{urlsplit(page.url).netloc}/api/kind", params={"coarse": coarse, "kind": kind}
    )
    images: list[dict[str, Any]] = answer.json()["images"]
    return images


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--classes", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        client = Client(Path(shutil.copytree(options.run, Path(folder) / "run")))
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        rows = walk(browser.new_page(viewport=WINDOW), client.address, options.classes)
        browser.close()
        client.end()
    print(Table(("", ""), rows).markdown())


if __name__ == "__main__":
    main()

"""Measure the explorer on generated images: start, page, map, memory, and the time of each request.

    python benchmarks/explorer.py --folder FOLDER

Images are JPEG files of 400 x 300 pixels in 20 coarse classes of 10 kinds each; embeddings have 512 values. They are
written to the folder once. The page is opened in a fresh Chromium without a graphics card (SwiftShader): usable when
the first thumbnail is there; frames are counted while the map is dragged for 5 seconds. Requests come one after the
other over one connection; latencies are those of the client. Prints Markdown tables.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import Page, ViewportSize, sync_playwright

from maskcon.report.formats import Table
from maskcon.retrieval.embeddings_file import write_embeddings
from maskcon.retrieval.store import Entry, Header

CLASSES, KINDS, DIMENSION = 20, 10, 512
PICTURES = 200  # different ones; the others are hard links
ROUNDS = 40
WINDOW: ViewportSize = {"width": 1366, "height": 768}
MAP_MS = 300_000  # to wait for the final map
DRAG = """async () => {
  const map = document.querySelector('#map');
  const stage = map.querySelector('.stage');
  const box = stage.getBoundingClientRect();
  const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
  stage.setPointerCapture = () => {};  // these pointers are not real ones
  const send = (type, dx, dy) => stage.dispatchEvent(new PointerEvent(type,
    {pointerId: 1, clientX: x + dx, clientY: y + dy, button: 0, bubbles: true}));
  send('pointerdown', 0, 0);
  const [start, frames] = [performance.now(), Number(map.dataset.frames)];
  let now = start;
  while (now - start < 5000) {
    await new Promise((resolve) => requestAnimationFrame(resolve));
    now = performance.now();
    send('pointermove', 500 * Math.sin((now - start) / 700), 200 * Math.cos((now - start) / 500));
  }
  send('pointerup', 0, 0);
  return (Number(map.dataset.frames) - frames) / ((now - start) / 1000);
}"""


def generate(folder: Path, count: int) -> Path:
    """Write images and their embeddings file, unless they are there; return the file."""
    folder = folder / str(count)
    file = folder / "photos.parquet"
    if file.exists():
        return file
    random = np.random.default_rng(0)
    for number in range(PICTURES):
        path = folder / "pictures" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        blocks = Image.fromarray(random.integers(0, 256, (6, 8, 3), dtype=np.uint8))
        blocks.resize((400, 300), Image.Resampling.BICUBIC).save(path)
    coarse = random.standard_normal((CLASSES, DIMENSION))
    fine = 0.5 * random.standard_normal((CLASSES, KINDS, DIMENSION))
    entries, vectors = [], []
    for number in range(count):
        group, kind = number % CLASSES, number // CLASSES % KINDS
        path = folder / "photos" / f"class{group:02}" / f"{number:06}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        os.link(folder / "pictures" / f"{number % PICTURES}.jpg", path)
        entries.append(
            Entry(str(path.relative_to(folder / "photos")), 0, 0, f"{number:064x}", f"class{group:02}")
        )
        vector = coarse[group] + fine[group, kind] + 0.6 * random.standard_normal(DIMENSION)
        vectors.append(vector.astype(np.float32))
    header = Header("e" * 64, "photos", str((folder / "photos").resolve()), {"image_size": 32})
    write_embeddings(file, header, entries, vectors)
    return file


class Client:
    """A running server, and one connection to it.

    Attributes:
        address: as it is printed, token included.
        started: seconds from the command to the address.
    """

    def __init__(self, place: Path) -> None:
        begun = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "maskcon", "explore", str(place), "--no-browser"], stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        found = re.search(rb"http://127\.0\.0\.1:(\d+)/\?token=(\S+)", self.process.stdout.readline())
        assert found is not None
        self.started, self.address = time.monotonic() - begun, found[0].decode()
        self.token = found[2].decode()
        self.connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=300)

    def ask(self, path: str, body: Any = None) -> tuple[int, bytes]:
        """Send a request."""
        headers = {"X-Maskcon-Token": self.token, "Content-Type": "application/json"}
        content = None if body is None else json.dumps(body)
        self.connection.request("GET" if body is None else "POST", path, content, headers)
        answer = self.connection.getresponse()
        return answer.status, answer.read()

    def memory(self, key: str = "VmHWM") -> float:
        """Return the largest resident memory so far, or VmRSS: that of now, in MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        return int(re.findall(rf"{key}:\s+(\d+)", status)[0]) / 1024

    def end(self) -> None:
        """Stop it."""
        self.process.terminate()
        self.process.wait()


def timed(work: Callable[[int], Any], rounds: int = ROUNDS) -> list[float]:
    """Return the milliseconds of each round."""
    found = []
    for number in range(rounds):
        begun = time.perf_counter()
        work(number)
        found.append(1000 * (time.perf_counter() - begun))
    return found


def measure(client: Client, count: int) -> list[tuple[str, list[float]]]:
    """Ask everything that the page asks."""
    random = np.random.default_rng(1)

    def ok(path: str, body: Any = None) -> bytes:
        status, content = client.ask(path, body)
        assert status in (200, 202), (path, status, content[:300])
        return content

    state = json.loads(ok("/api/state"))
    names = [(group["name"], kind["name"]) for group in state["classes"] for kind in group["kinds"]]

    def rename(number: int) -> None:
        group, kind = names[number % len(names)]
        ok("/api/edits", {"action": "rename", "coarse": group, "kind": kind, "to": f"named {number}"})
        names[number % len(names)] = group, f"named {number}"

    def ids(number: int, size: int) -> list[int]:
        return [int(row) * CLASSES + number % CLASSES for row in random.permutation(count // CLASSES)[:size]]

    def move(number: int, size: int = 40) -> None:
        ok("/api/edits", {"action": "move", "ids": ids(number, size), "to": f"moved {number}"})

    def search(number: int) -> None:
        body = {"positive": ids(number, 2), "negative": ids(number, 1), "k": 48}
        ok("/api/search", body)

    def kind(number: int) -> None:
        group, name = names[-1 - number % (len(names) // 2)]
        ok(f"/api/kind?coarse={group}&kind={name.replace(' ', '%20')}")

    rows = [
        ("state, unchanged", timed(lambda _: ok("/api/state"))),
        ("labels of all images", timed(lambda _: ok("/api/labels"), 10)),
        ("one kind, its images", timed(kind)),
        ("search, 2 images minus 1", timed(search)),
        ("search within a class", timed(lambda n: ok("/api/search", {"positive": [n], "coarse": "class00"}))),
        ("thumbnail, first time", timed(lambda n: ok(f"/thumb/{n}?size=128"), 200)),
        ("thumbnail, again", timed(lambda n: ok(f"/thumb/{n}?size=128"), 200)),
        ("edit: rename a kind", timed(rename)),
        ("edit: move 40 images", timed(move)),
        ("edit: mark 40 as junk", timed(lambda n: ok("/api/edits", {"action": "junk", "ids": ids(n, 40)}))),
        ("undo", timed(lambda _: ok("/api/undo", {}))),
        ("redo", timed(lambda _: ok("/api/redo", {}))),
    ]

    def split(number: int) -> None:
        group, name = names[-1 - number % len(names)]
        ok("/api/edits", {"action": "split", "coarse": group, "kind": name, "parts": 2})

    rows.append(("edit: split a kind in 2", timed(split, 20)))
    states = []
    for number in range(ROUNDS):
        move(number, 5)
        states += timed(lambda _: ok("/api/state"), 1)
    rows.append(("state after an edit", states))
    rows.append(("suggestions of a class", timed(lambda _: ok("/api/suggestions?coarse=class00"), 5)))
    rows.append(("map at once", timed(lambda _: ok("/api/map"), 3)))
    return rows


def wait_until(page: Page, expression: str) -> None:
    """Wait until an expression is true; `wait_for_function` needs an eval that the page forbids."""
    while not page.evaluate(expression):
        time.sleep(0.01)


def open_page(page: Page, address: str) -> float:
    """Open the page; return the seconds until it is usable."""
    start = time.perf_counter()
    page.goto(address)
    page.wait_for_selector("html[data-ready=true]")
    wait_until(page, "document.querySelector('.face img')?.naturalWidth > 0")
    return time.perf_counter() - start


def drag_map(page: Page) -> float:
    """Wait for the final map; return the frames per second while it is dragged."""
    page.evaluate("location.hash = '#map'")
    page.locator("#map .overlay > *").first.wait_for(timeout=MAP_MS)
    wait_until(page, "document.querySelector('.map-note').textContent === ''")
    page.wait_for_timeout(1000)  # labels settle
    return float(page.evaluate(DRAG))


def measure_session(page: Page, file: Path, count: int) -> tuple[list[str], str]:
    """Return the column of one number of images, and the table of its requests."""
    shutil.rmtree(file.parent / "photos-kinds", ignore_errors=True)
    client = Client(file)
    first = client.started
    client.end()
    client = Client(file)
    usable = open_page(page, client.address)
    memory = client.memory("VmRSS")
    rows = []
    for name, times in measure(client, count):
        late = sorted(times)[int(0.95 * (len(times) - 1))]
        rows.append((name, f"{statistics.median(times):.1f}", f"{late:.1f}", str(len(times))))
    frames = drag_map(page)
    client.connection.close()  # idle for long: the server has closed it; the next request opens another
    for queue in ("mislabelled", "duplicates"):
        while client.ask(f"/api/check?queue={queue}")[0] == 202:
            time.sleep(0.5)
    column = [
        f"{client.started:.1f} s",
        f"{first:.1f} s",
        f"{usable:.1f} s",
        f"{frames:.0f}",
        f"{memory:.0f} MB",
        f"{client.memory():.0f} MB",
    ]
    client.end()
    return column, Table(("request", "median ms", "95 % ms", "n"), rows).markdown()


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, nargs="+", default=[20_000, 100_000])
    parser.add_argument("--folder", type=Path, required=True, help="for the images and results")
    options = parser.parse_args()
    columns, requests = [], ""
    with sync_playwright() as driver:
        for count in options.images:
            file = generate(options.folder, count)
            browser = driver.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
            )
            page = browser.new_page(viewport=WINDOW)
            column, requests = measure_session(page, file, count)
            columns.append(column)
            browser.close()
    names = (
        "from the command to the address, kinds found before",
        "the same, kinds to be found first",
        "page usable, fresh browser",
        "map while dragged, frames per second",
        "memory of the server after the start",
        "at most, with map and queues",
    )
    head = ("", *(f"{count:,} images" for count in options.images))
    print(Table(head, list(zip(names, *columns, strict=True))).markdown())
    print(f"\n{options.images[-1]:,} images:\n\n{requests}")


if __name__ == "__main__":
    main()

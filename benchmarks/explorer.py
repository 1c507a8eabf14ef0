"""Measure the explorer's server on generated images: start, memory, and the time of each request.

    python benchmarks/explorer.py --images 100000 --folder /tmp/explorer

Images are JPEG files of 400 x 300 pixels in 20 coarse classes of 10 kinds each; embeddings have 512 values. Requests
come one after the other over one connection; latencies are those of the client.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from maskcon.report.formats import Table
from maskcon.retrieval.embeddings_file import write_embeddings
from maskcon.retrieval.store import Entry, Header

CLASSES, KINDS, DIMENSION = 20, 10, 512
PICTURES = 200  # different ones; the others are hard links
ROUNDS = 40


def generate(folder: Path, count: int) -> Path:
    """Write images and their embeddings file, unless they are there."""
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
    """A running server and one connection to it."""

    def __init__(self, file: Path) -> None:
        begun = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "maskcon", "explore", str(file), "--no-browser"], stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        found = re.search(rb"127\.0\.0\.1:(\d+)/\?token=(\S+)", self.process.stdout.readline())
        assert found is not None
        self.started = time.monotonic() - begun
        self.token = found[2].decode()
        self.connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=300)
        self.ask("/api/state")
        self.usable = time.monotonic() - begun

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

    def end(self) -> float:
        """Stop it; return the seconds it took."""
        begun = time.monotonic()
        self.process.terminate()
        self.process.wait()
        return time.monotonic() - begun


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

    rows.append(("edit: split a kind in 2", timed(lambda n: ok("/api/edits", {
        "action": "split", "coarse": names[-1 - n][0], "kind": names[-1 - n][1], "parts": 2}), 20)))  # fmt: skip
    states = []
    for number in range(ROUNDS):
        move(number, 5)
        states += timed(lambda _: ok("/api/state"), 1)
    rows.append(("state after an edit", states))
    rows.append(("suggestions of a class", timed(lambda _: ok("/api/suggestions?coarse=class00"), 5)))
    rows.append(("map at once", timed(lambda _: ok("/api/map"), 3)))
    return rows


def wait_for_map(client: Client) -> float:
    """Ask for the map until t-SNE is ready; return the seconds."""
    begun = time.monotonic()
    while True:
        values = json.loads(client.ask("/api/map/progress")[1])
        if values["done"] >= values["total"]:
            return time.monotonic() - begun
        time.sleep(0.5)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, required=True, help="to write the images and results to")
    options = parser.parse_args()
    file = generate(options.folder, options.images)
    first = Client(file)
    found = first.usable
    first.end()
    client = Client(file)
    print(f"first start, kinds found: {found:.1f} s; start again: {client.started:.1f} s to the address, "
          f"{client.usable:.1f} s to the state", flush=True)  # fmt: skip
    print(
        f"memory after the start: {client.memory('VmRSS'):.0f} MB, at most {client.memory():.0f} MB",
        flush=True,
    )
    rows = [
        (name, statistics.median(times), sorted(times)[int(0.95 * (len(times) - 1))], len(times))
        for name, times in measure(client, options.images)
    ]
    table = Table(
        ("request", "median ms", "95 % ms", "n"), [(n, f"{m:.1f}", f"{p:.1f}", str(c)) for n, m, p, c in rows]
    )
    print(table.markdown())
    print(f"map by t-SNE: {wait_for_map(client):.0f} s", flush=True)
    for queue in ("mislabelled", "duplicates"):
        begun = time.monotonic()
        while client.ask(f"/api/check?queue={queue}")[0] == 202:
            time.sleep(0.5)
        print(f"{queue}: {time.monotonic() - begun:.0f} s", flush=True)
    print(f"memory at the end: {client.memory('VmRSS'):.0f} MB, at most {client.memory():.0f} MB")
    print(f"end: {client.end():.1f} s")


if __name__ == "__main__":
    main()

"""A real explorer process on generated images, and requests to it."""

from __future__ import annotations

import http.client
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from maskcon.retrieval.embeddings_file import write_embeddings
from maskcon.retrieval.store import Entry, Header
from tests.cli.commands import environment

CLASSES = ("apple", "pear", "<script>alert(1)</script>")
PER_CLASS = 40
DIMENSION = 16


def draw(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (20, 30, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


def embeddings(folder: Path) -> Path:
    """Write photos and an embeddings file of two kinds per class; return the file."""
    random = np.random.default_rng(0)
    entries, vectors = [], []
    for number, name in enumerate(CLASSES):
        for image in range(PER_CLASS):
            path = f"{number}/{image:02}.png"
            draw(folder / "photos" / path, 100 * number + image)
            entries.append(Entry(path, 0, 0, f"{100 * number + image:064x}", name))
            centre = 3 * np.eye(DIMENSION)[number] + np.eye(DIMENSION)[8 + 2 * number + image % 2]
            vectors.append((centre + 0.1 * random.standard_normal(DIMENSION)).astype(np.float32))
    header = Header("e" * 64, *2 * [str((folder / "photos").resolve())], {"image_size": 32})
    write_embeddings(folder / "photos.parquet", header, entries, vectors)
    return folder / "photos.parquet"


class Served:
    """A running `maskcon explore`."""

    def __init__(self, place: Path, *options: str, **variables: str) -> None:
        command = [sys.executable, "-m", "maskcon", "explore", str(place), "--no-browser", *options]
        self.errors = place.parent / f"errors-{os.getpid()}.txt"
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, env=environment() | variables
            )
        line = self._line()
        found = re.search(rb"http://127\.0\.0\.1:(\d+)/\?token=(\S+)", line)
        assert found, (line, self.errors.read_text())
        self.port, self.token = int(found[1]), found[2].decode()

    def _line(self, timeout: float = 120) -> bytes:
        assert self.process.stdout is not None
        selector = selectors.DefaultSelector()
        selector.register(self.process.stdout, selectors.EVENT_READ)
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if selector.select(0.5):
                return self.process.stdout.readline()
            if self.process.poll() is not None:
                break
        return b""

    def raw(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Send a request without adding a token."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
        finally:
            connection.close()

    def get(self, path: str) -> tuple[int, bytes]:
        """Send a GET with the token."""
        status, _, content = self.raw("GET", path, None, {"X-Maskcon-Token": self.token})
        return status, content

    def json(self, path: str, body: Any = None) -> Any:
        """Get JSON, or post it; a refusal is an error of the test."""
        status, content = self.ask(path, body)
        assert status == 200, (status, content)
        return content

    def ask(self, path: str, body: Any = None) -> tuple[int, Any]:
        """Get JSON, or post it."""
        headers = {"X-Maskcon-Token": self.token, "Content-Type": "application/json"}
        method, content = ("GET", None) if body is None else ("POST", json.dumps(body).encode())
        status, _, answer = self.raw(method, path, content, headers)
        return status, json.loads(answer)

    def end(self, number: int = signal.SIGINT) -> int:
        """Stop it by a signal; return the exit code."""
        self.process.send_signal(number)
        self.process.communicate(timeout=60)
        return self.process.returncode

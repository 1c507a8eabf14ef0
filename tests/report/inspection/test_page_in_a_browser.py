"""The page of an inspection on a phone, in a real browser."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from maskcon.report.inspection import inspect_source, page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NAMES = ("animals", "machines of the household", "x" * 80)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine"),
]


def test_a_phone_shows_names_whole_and_never_scrolls_sideways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    numbers = np.random.default_rng(0)
    for name in NAMES:
        (tmp_path / "photos" / name).mkdir(parents=True)
        for picture in range(8):
            pixels = numbers.integers(0, 256, (24, 40, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{picture}.png")
    found, read = inspect_source(str(tmp_path / "photos"))
    written = tmp_path / "inspection.html"
    written.write_text(page(found, read), encoding="utf-8")

    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        shown = browser.new_page(viewport={"width": 375, "height": 800})
        shown.goto(written.as_uri(), wait_until="load")
        assert shown.evaluate("document.documentElement.scrollWidth") <= 375
        lines = shown.evaluate(
            """() => [...document.querySelectorAll('td:first-child, th:first-child')].map(cell => {
                const range = document.createRange(); range.selectNodeContents(cell);
                return [cell.textContent, new Set([...range.getClientRects()].map(r => r.top)).size]; })"""
        )
        browser.close()
    told = dict(lines)
    assert told["class"] == 1
    assert told["animals"] == 1
    assert told["machines of the household"] <= 3  # broken between words
    assert told["x" * 80] > 3  # where there is no other way, within one

"""Reports of made-up runs, with names that try to break a page."""

from __future__ import annotations

import html.parser
from typing import Any

import numpy as np

from maskcon.report.sample import Sample
from maskcon.report.write import ReportInputs, RunRecord

EVIL = "</script><script>document.documentElement.dataset.errors='9'</script><img src=x onerror=alert(1)>\"'&$title"
STRANGE = ('it\'s "quoted"', "<b>bold</b>", "кошки 🐈", "鳥", "a b.jpg", "x" * 90)


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


def journal() -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = [{"kind": "start", "folder": "runs/0"}]
    events += [{"kind": "step", "step": s, "epoch": 0, "loss": 3.0 - s / 10} for s in range(1, 9)]
    events += [{"kind": "evaluation", "step": 4 * e, "epoch": e, "recall": {"1": 0.1 * e}} for e in range(3)]
    return [*events, {"kind": "warning", "message": EVIL}, {"kind": "end"}]


def record(method: str, seed: int, recall: float = 0.5, label: str = "", **settings: Any) -> RunRecord:
    given = {"method": method, "seed": seed, "bank_size": 64, "note": EVIL, **settings}
    result = {
        "method": method,
        "recall": {"1": recall},
        "raw_pixels": {"1": 0.1},
        "seed": seed,
        "source": "x",
    }
    result |= {"epochs": 2, "coarse_weight": given.get("coarse_weight", 0.0), "settings": given}
    return RunRecord(label or f"{method}{seed}", result, journal())


def sample(n: int = 30, *, fine: bool = True, label: str = EVIL, several: bool = True) -> Sample:
    """n images of 8 x 8 pixels, six fine classes in two coarse ones."""
    generator = np.random.default_rng(0)
    kinds = np.arange(n) % 6
    embeddings = {label: generator.normal(size=(n, 5))}
    if several:
        embeddings["other"] = generator.normal(size=(n, 3))
    return Sample(
        images=generator.integers(0, 255, (n, 3, 8, 8), dtype=np.uint8),
        coarse=kinds // 3,
        coarse_names=["first", EVIL],
        embeddings=embeddings,
        queries=np.arange(min(3, n)),
        fine=kinds if fine else None,
        fine_names=[EVIL, "b", "c", "d", "e", "日本"] if fine else None,
        ids=[f"{STRANGE[row % len(STRANGE)]}/{row}" for row in range(n)],
    )


def inputs(**changes: Any) -> ReportInputs:
    methods = (("selfcon", 0.3), ("maskcon", 0.5), ("supfine", 0.8))
    runs = [record(method, seed, recall) for method, recall in methods for seed in (0, 1)]
    # Short enough to stand whole in a figure, whose SVG repeats it in a comment.
    evil = "--><script>x()//\udcff"
    runs += [record("mine", 0, 0.2, evil), record("mine", 0, 0.2, "mine", bank_size=8)]
    given: dict[str, Any] = {
        "title": EVIL,
        "runs": runs,
        "sample": sample(),
        "about": [("Images", EVIL), ("Coarse classes", ", ".join(STRANGE))],
        "rerun": [(EVIL, f"maskcon train '{EVIL}'")],
    }
    return ReportInputs(**(given | changes))

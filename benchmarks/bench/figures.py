"""Results of the rows, the bounds asked of them, and both as JSON and as tables."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from maskcon._utils.errors import CorruptFileError, UsageError

Figure = float | int | str | None  # a number, a remark, or None where it could not be measured here
Row = dict[str, Figure]
Figures = dict[str, Row]  # by row; JSON has the same nesting

MACHINE = "machine"  # beside the rows in the JSON


@dataclass(frozen=True)
class Asked:
    """A figure, its good direction, and the bound asked of it, if any."""

    row: str
    name: str
    good: Literal["low", "high"]
    bound: float | None
    meaning: str

    @property
    def path(self) -> str:
        return f"{self.row}.{self.name}"

    def is_met(self, value: float) -> bool | None:
        """Return whether the bound holds; None without a bound.

        >>> Asked("step_overhead", "cpu", "low", 1.25, "").is_met(1.3)
        False
        """
        if self.bound is None:
            return None
        return value <= self.bound if self.good == "low" else value >= self.bound

    @property
    def spoken_bound(self) -> str:
        if self.bound is None:
            return f"{'lower' if self.good == 'low' else 'higher'} is better"
        return f"{'at most' if self.good == 'low' else 'at least'} {self.bound:.3g}"


ASKED: tuple[Asked, ...] = (
    Asked("step_overhead", "resnet18", "low", 1.05, "whole step / bare passes of both encoders, ResNet-18"),
    Asked("step_overhead", "cpu", "low", 1.25, "the same with the preset cpu's net"),
    Asked("step_vs_plain", "resnet18", "high", 1.15, "plain PyTorch step / our step, ResNet-18"),
    Asked("step_vs_plain", "cpu", "high", None, "the same with the preset cpu's net"),
    Asked(
        "loss_memory", "ratio_b1024_k65536", "low", 1 / 3, "peak memory of relation + loss / full matrices"
    ),
    Asked("recall_eval", "ratio_to_faiss_25k", "low", 1.0, "recall@K seconds / faiss flat search, 25k x 512"),
    Asked("recall_eval", "extra_mb", "low", 256.0, "MB beyond the embeddings, the most at any N"),
    Asked("pack_read", "ratio_to_jpeg", "high", None, "images per second from a pack / decoded from JPEG"),
    Asked("startup", "help_seconds", "low", None, "`maskcon --help`"),
    Asked("startup", "import_ratio_to_torch", "low", 0.2, "`import maskcon` / `import torch`"),
    Asked("busy_core", "ratio", "low", 2.5, "training seconds beside one busy process / alone"),
    Asked("scaling", "efficiency_2", "high", None, "images per second of 2 processes / twice those of 1"),
)


@dataclass(frozen=True)
class Line:
    """A figure with its bound, as text."""

    path: str
    value: str
    bound: str
    met: Literal["yes", "no", "-", "not measured"]
    meaning: str


def lines(figures: Mapping[str, Mapping[str, Figure]]) -> Iterator[Line]:
    """Yield the asked figures of the rows that were run."""
    for asked in ASKED:
        if asked.row not in figures:
            continue
        value = figures[asked.row].get(asked.name)
        if not isinstance(value, int | float):
            yield Line(asked.path, "-", asked.spoken_bound, "not measured", asked.meaning)
            continue
        met = asked.is_met(value)
        word: Literal["yes", "no", "-"] = "-" if met is None else "yes" if met else "no"
        yield Line(asked.path, spoken(value), asked.spoken_bound, word, asked.meaning)


def further(figures: Mapping[str, Mapping[str, Figure]]) -> Iterator[tuple[str, str]]:
    """Yield path and value of all other figures and remarks."""
    known = {asked.path for asked in ASKED}
    for row, values in figures.items():
        for name, value in values.items():
            if f"{row}.{name}" not in known and value is not None:
                yield f"{row}.{name}", spoken(value)


def spoken(value: Figure) -> str:
    """
    >>> spoken(1.0456), spoken(13234.5), spoken(12), spoken("a remark")
    ('1.05', '13,234', '12', 'a remark')
    """
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def markdown(figures: Mapping[str, Mapping[str, Figure]]) -> str:
    """Return both tables as Markdown."""
    text = ["| figure | value | asked | met | what it is |", "|---|---:|---|---|---|"]
    text += [f"| `{x.path}` | {x.value} | {x.bound} | {x.met} | {x.meaning} |" for x in lines(figures)]
    text += ["", "| further figure | value |", "|---|---:|"]
    text += [f"| `{path}` | {value} |" for path, value in further(figures)]
    return "\n".join(text)


def as_json(figures: Figures, machine: Mapping[str, Any]) -> bytes:
    return (json.dumps({**figures, MACHINE: dict(machine)}, indent=1) + "\n").encode()


def read(path: Path) -> Figures:
    """Read the rows of a file written by `--json`."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        raise CorruptFileError(
            f"{path} is not JSON; `python -m benchmarks.bench --json {path}` writes it"
        ) from None
    if not isinstance(content, dict) or not all(isinstance(row, dict) for row in content.values()):
        raise CorruptFileError(
            f"{path} holds no figures; `python -m benchmarks.bench --json {path}` writes them"
        )
    return {name: row for name, row in content.items() if name != MACHINE}


def machine_facts(*, quick: bool) -> dict[str, Any]:
    """Describe the machine, the versions and the commit."""
    packages = ("maskcon", "torch", "numpy", "pillow", "lightning-fabric", "faiss-cpu")
    return {
        "packages": {name: _version(name) for name in packages},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "commit": _commit(),
        "quick": quick,
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _commit() -> str | None:
    """Return the commit, with a + if the sources have changed since; None outside a repository."""
    folder = Path(__file__).parents[2]
    if not (folder / ".git").exists():
        return None
    try:
        done = [
            subprocess.run(["git", "-C", str(folder), *command], capture_output=True, text=True, check=True)
            for command in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        ]
    except (OSError, subprocess.CalledProcessError):
        return None
    return done[0].stdout.strip() + ("+" if done[1].stdout.strip() else "")

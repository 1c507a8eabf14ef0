"""Data and settings of the paper's runs, at two scales.

`full` is the paper's size on its data, `cpu` a small part for two cores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskcon._utils.errors import DataError, UsageError, unknown
from maskcon.data.builtin.registry import describe

SCALES = ("cpu", "full")
STAND_IN = "embedded"

# Network, views and loss are those of the preset `cpu`; the rest is cut so that every table takes about ten minutes or
# less on two cores. One learning rate for all methods, as in the paper.
CPU_SETTINGS: dict[str, Any] = {
    "batch_size": 64,
    "bank_size": 1024,
    "learning_rate": 0.12,
    "weight_decay": 5e-4,
    "warmup_epochs": 0.5,
    "relation_warmup_epochs": 1.0,
    "eval_every_epochs": 0,
}
# Images to train on, images to score, epochs. A table of CIFARtoy has two datasets, hence less of each. Of every fine
# class at least two images are scored: a single one has no match to find.
CPU_PARTS = {
    "embedded": (3_000, 1_000, 7),
    "cifartoy-good": (2_000, 1_000, 5),
    "cifartoy-bad": (2_000, 1_000, 5),
    "cifar100": (3_000, 1_000, 7),
    "imagenet32": (3_000, 3_000, 8),
    "sop-split1": (5_034, 5_036, 5),
    "sop-split2": (2_996, 2_996, 8),
    "cars196": (1_960, 1_960, 12),
}
LARGE_IMAGES = ("sop-split1", "sop-split2", "cars196")
# Settings that the trials of a plan vary, and why they cannot be changed.
PLANNED = {
    "w": "it is what a table or figure compares",
    "tau": "it is what a table or figure compares",
    "seed": "--seeds N takes the seeds 0 to N-1",
    "evaluate_on": "both parts are scored where w and tau are chosen",
}
SMALL_SIDE = 32  # side of large images at scale cpu, after shrinking


@dataclass(frozen=True)
class Ground:
    """Data, preset and other settings of the runs for one of the paper's datasets.

    asked: the paper's dataset; source: the dataset used, which differs only for a stand-in
    settings: those that differ from the preset
    folder: folder of the runs, such as ``cpu/cifar100``
    warning: text if a stand-in is used, else None
    """

    asked: str
    source: str
    scale: str
    preset: str
    settings: Mapping[str, Any]
    warning: str | None = None

    @property
    def stands_in(self) -> bool:
        """Whether other data than the paper's are used, so that numbers cannot be compared."""
        return self.source != self.asked

    @property
    def title(self) -> str:
        """Return the dataset asked for, with its stand-in."""
        return f"{self.asked} (STAND-IN: {self.source})" if self.stands_in else self.asked

    @property
    def folder(self) -> Path:
        return Path(self.scale if self.scale == "cpu" else f"{self.scale}-{self.preset}") / self.source


def ground_for(
    source: str,
    *,
    scale: str = "cpu",
    preset: str | None = None,
    data_root: str | None = None,
    download: bool = False,
    changes: Mapping[str, Any] | None = None,
) -> Ground:
    """Choose data and settings of the runs for one of the paper's datasets.

    Args:
        source: the paper's dataset, such as ``"cifar100"``.
        scale: ``"cpu"``, which uses the embedded dataset in place of missing data, or ``"full"``, which does not.
        preset: ``"paper"`` (if not given) or ``"reference"``, for full scale only.
        data_root: folder of the datasets, if not the usual one.
        download: allow downloading missing data.
        changes: settings that differ from the scale's, by name; not those of `PLANNED`.
    """
    if scale not in SCALES:
        raise unknown("scale", scale, SCALES)
    if scale == "cpu" and preset is not None:
        raise UsageError(f"--preset {preset} is for --scale full; the scale cpu has its own settings")
    if preset not in (None, "paper", "reference"):
        raise unknown("preset", str(preset), ("paper", "reference"))
    changes = dict(changes or {})
    for key in changes:
        if key in PLANNED:
            raise UsageError(f"--set {key} cannot be used here: {PLANNED[key]}")
    absent = None if download else _absent(source, data_root)
    if scale == "full":
        if absent is not None:
            raise DataError(absent)
        return Ground(source, source, scale, preset or "paper", changes)
    used, warning = source, None
    if absent is not None:
        used = STAND_IN
        warning = (
            f"STAND-IN: the embedded images of clothes are used in place of {source}. No number is a result on "
            f"{source}, so no difference from the paper is given. Why: {absent}"
        )
    train, test, epochs = CPU_PARTS[used]
    settings = {**CPU_SETTINGS, "train_limit": train, "test_limit": test, "epochs": epochs}
    settings |= {"image_size": SMALL_SIDE} if used in LARGE_IMAGES else {}
    return Ground(source, used, scale, "cpu", {**settings, **changes}, warning)


def _absent(source: str, data_root: str | None) -> str | None:
    """Describe what is missing, how to get it and where to put it; None if the data are complete."""
    found = describe(source, None if data_root is None else Path(data_root))
    if not found.missing:
        return None
    info = found.info
    return (
        f"{info.title} is not (whole) in {found.folder}; missing: {'; '.join(found.missing)}. "
        f"To get it: {info.how_to_get} ({info.origin_url}); for another folder give --data-root"
    )

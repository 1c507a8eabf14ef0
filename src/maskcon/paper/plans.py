"""What is run for a table of the paper: every method with every w and tau that it tries, at which scale.

The scale `full` is the paper's own size on its data, `cpu` a small part of it for two cores.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from maskcon._utils.errors import DataError, UsageError, unknown
from maskcon.data.builtin.registry import describe
from maskcon.report.published import appendix_rows, main_rows

CHOICE_SEED = 0  # the seed of the validation runs that choose w and tau


@dataclass(frozen=True)
class Trial:
    """A method with its settings (None where it has none), a seed, and the part it is scored on.

    >>> Trial("maskcon", 1.0, 0.05, seed=2).name, Trial("grafit", 0.5, evaluate_on="validation").name
    ('maskcon-w1-tau0.05-seed2', 'grafit-w0.5-validation-seed0')
    """

    method: str
    w: float | None = None
    tau: float | None = None
    seed: int = 0
    evaluate_on: Literal["test", "validation"] = "test"

    @property
    def name(self) -> str:
        """Name the folder, which all tables and figures that need this trial share."""
        parts = [self.method]
        parts += [] if self.w is None else [f"w{self.w:g}"]
        parts += [] if self.tau is None else [f"tau{self.tau:g}"]
        parts += [] if self.evaluate_on == "test" else [self.evaluate_on]
        return "-".join([*parts, f"seed{self.seed}"])

    def canonical(self) -> Trial:
        """Return the trial to run for this one: identities of the paper let several names share a run.

        SupCon is Grafit with w = 1, CoIns with w = 1 is SupCE (without the unused keys),
        w = 0 is SelfCon, and MaskCon with tau = inf is Grafit.

        >>> Trial("maskcon", 1.0, math.inf).canonical() == Trial("supcon").canonical() == Trial("grafit", 1.0)
        True
        """
        if self.method == "supcon":
            return replace(self, method="grafit", w=1.0)
        if self.method in ("grafit", "coins", "maskcon") and self.w == 0:
            return replace(self, method="selfcon", w=None, tau=None)
        if self.method == "coins" and self.w == 1:
            return replace(self, method="supce", w=None)
        if self.method == "maskcon" and self.tau == math.inf:
            return replace(self, method="grafit", tau=None).canonical()
        return self


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper. `main` reports one number per method, `appendix` one per method and setting."""

    name: str
    title: str
    sources: tuple[str, ...]
    kind: Literal["main", "appendix"]


TABLES: dict[str, PaperTable] = {
    table.name: table
    for name, title, *sources in (
        ("cifartoy", "CIFARtoy", "cifartoy-good", "cifartoy-bad"),
        ("cifar100", "CIFAR100", "cifar100"),
        ("imagenet32", "ImageNet-1K at 32 x 32", "imagenet32"),
        ("sop1", "SOP-split1", "sop-split1"),
        ("sop2", "SOP-split2", "sop-split2"),
        ("cars196", "Stanford Cars196", "cars196"),
    )
    for table in (
        PaperTable(name, title, tuple(sources), "main"),
        PaperTable(f"appendix-{name}", f"{title}, appendix", tuple(sources), "appendix"),
    )
    if table.name != "appendix-imagenet32"  # the appendix has none
}

W_GRID = (0.2, 0.5, 0.8, 1.0)  # of Grafit and CoIns, in every table of the appendix
# Ours, for ImageNet: the paper names no setting there. The values that won on the other datasets.
IMAGENET_GRID = ((0.8, 0.05), (0.8, 0.1), (1.0, 0.05), (1.0, 0.1))


def table_named(name: str) -> PaperTable:
    """Return the table of this name; a misspelt one is an error that names the nearest."""
    if name not in TABLES:
        raise unknown("table", name, TABLES)
    return TABLES[name]


def candidates(source: str, method: str) -> tuple[Trial, ...]:
    """List the settings among which the paper reports the best; a single one where there is no choice.

    >>> [trial.name for trial in candidates("cars196", "maskcon")][:2]
    ['maskcon-w1-tau0.01-seed0', 'maskcon-w1-tau0.05-seed0']
    """
    if method in ("grafit", "coins"):
        return tuple(Trial(method, w) for w in W_GRID)
    if method == "maskcon":
        printed = [(row.w, row.tau) for row in appendix_rows(source) if row.method == method]
        return tuple(Trial(method, w, tau) for w, tau in printed or IMAGENET_GRID)
    return (Trial(method),)


def paper_trial(source: str, method: str) -> Trial:
    """Return a method with the w and tau behind the paper's main table of a dataset.

    >>> paper_trial("cars196", "maskcon").name
    'maskcon-w1-tau0.1-seed0'
    """
    row = next(row for row in main_rows(source) if row.method == method)
    return Trial(method, row.w, row.tau)


def trials_for(table: PaperTable, source: str, seeds: int = 1) -> tuple[Trial, ...]:
    """List every trial that one dataset's part of a table needs, once each, in the form in which it is run.

    All settings are scored on the test images with every seed, as in the paper. A main table also selects by
    validation: where there is a choice, each setting is trained once more on a part of the training images, and
    scored on the rest.
    """
    return tuple(dict.fromkeys(trial.canonical() for trial in _wanted(table, source, seeds)))


def with_seeds(trial: Trial, seeds: int) -> list[Trial]:
    """Repeat the trial with seeds 0, 1, ..."""
    return [replace(trial, seed=seed) for seed in range(seeds)]


def on_validation(trial: Trial) -> Trial:
    """Return the validation run of a trial, whose score may select w and tau."""
    return replace(trial, seed=CHOICE_SEED, evaluate_on="validation")


def _wanted(table: PaperTable, source: str, seeds: int) -> Iterator[Trial]:
    if table.kind == "appendix":
        for row in appendix_rows(source):
            yield from with_seeds(Trial(row.method, row.w, row.tau), seeds)
        return
    for row in main_rows(source):
        choices = candidates(source, row.method)
        for trial in choices:
            yield from with_seeds(trial, seeds)
        if len(choices) > 1:
            yield from (on_validation(trial) for trial in choices)


SCALES = ("cpu", "full")
STAND_IN = "embedded"

# The net, views and loss are the preset `cpu`'s; the rest is cut so that every table takes about ten minutes or less on
# two cores. One learning rate for all methods, as in the paper.
CPU_SETTINGS: dict[str, Any] = {
    "batch_size": 64,
    "bank_size": 1024,
    "learning_rate": 0.12,
    "weight_decay": 5e-4,
    "warmup_epochs": 0.5,
    "relation_warmup_epochs": 1.0,
    "eval_every_epochs": 0,
}
# Images to train on, images to score, epochs. CIFARtoy has two datasets to a table, hence less of each. Where
# classes are many, at least two images of each are scored: with one there is nothing to find.
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
    "evaluate_on": "both parts are scored where there is something to choose",
}
SMALL_SIDE = 32  # what large images are shrunk to at scale cpu


@dataclass(frozen=True)
class Ground:
    """The data that runs of a dataset use, the preset, and the settings that differ from it.

    asked: the paper's dataset; source: the one used, another only as a stand-in
    folder: of the runs, such as ``cpu/cifar100``
    warning: text where a stand-in is used, else None
    """

    asked: str
    source: str
    scale: str
    preset: str
    settings: Mapping[str, Any]
    warning: str | None = None

    @property
    def stands_in(self) -> bool:
        """Whether other data than the paper's are used, so that no number can be compared with the paper's."""
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
        scale: ``"cpu"``, with the embedded set in place of data that are not here, or ``"full"``, which refuses that.
        preset: ``"paper"`` (if not given) or ``"reference"``, for full scale only.
        data_root: folder of the datasets, if not the usual one.
        download: missing data may be downloaded.
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
    """Describe what is missing, where to get it and where it belongs; None if the data are here."""
    found = describe(source, None if data_root is None else Path(data_root))
    if not found.missing:
        return None
    info = found.info
    return (
        f"{info.title} is not (whole) in {found.folder}; missing: {'; '.join(found.missing)}. "
        f"To get it: {info.how_to_get} ({info.origin_url}); for another folder give --data-root"
    )

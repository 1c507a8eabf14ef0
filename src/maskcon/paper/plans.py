"""The trials of each table and figure of the paper: every method with every w and tau that it needs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from maskcon._utils.errors import UsageError, unknown
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
        """Return the trial to run for this one: by identities of the paper, several trials share a run.

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


@dataclass(frozen=True)
class PaperFigure:
    """A figure of the paper: dataset, methods (one run each, with the paper's settings), and other trials.

    A figure without methods and trials shows the dataset itself.
    """

    name: str
    title: str
    sources: tuple[str]
    methods: tuple[str, ...] = ()
    trials: tuple[Trial, ...] = ()
    takes_seeds: bool = False


W_AXIS = (0.0, 0.2, 0.5, 0.8, 1.0)  # of figure 2, section 4.1
TAU_AXIS = (0.0, 0.01, 0.05, 0.1, 0.5, math.inf)
FIGURES: dict[str, PaperFigure] = {
    figure.name: figure
    for figure in (
        PaperFigure("relations", "figure 1: relations of a batch", ("cifartoy-good",), ("maskcon",)),
        PaperFigure(
            "heatmap",
            "figure 2: recall@1 over w and tau",
            ("cifar100",),
            trials=tuple(Trial("maskcon", w, tau) for w in W_AXIS for tau in TAU_AXIS),
            takes_seeds=True,
        ),
        PaperFigure(
            "tsne",
            "figure 3: maps of the test images",
            ("cifartoy-good",),
            ("selfcon", "supcon", "grafit", "coins", "maskcon", "supfine"),
        ),
        PaperFigure(
            "retrieval",
            "figure 4: the ten nearest",
            ("cars196",),
            ("selfcon", "grafit", "coins", "maskcon", "supfine"),
        ),
        PaperFigure("sop-statistics", "appendix A: images per product", ("sop-split1",)),
        PaperFigure("coarse-cars", "appendix A: the models and their coarse classes", ("cars196",)),
    )
}
W_GRID = (0.2, 0.5, 0.8, 1.0)  # of Grafit and CoIns, in every table of the appendix
# For ImageNet the paper names no settings; these are ours, the values that won on the other datasets.
IMAGENET_GRID = ((0.8, 0.05), (0.8, 0.1), (1.0, 0.05), (1.0, 0.1))


def table_named(name: str) -> PaperTable:
    """Return the table of this name; for a misspelt one, the error suggests the nearest."""
    if name not in TABLES:
        raise unknown("table", name, TABLES)
    return TABLES[name]


def figure_named(name: str, seeds: int = 1) -> PaperFigure:
    """Return the figure of this name; refuse misspelt names, and seeds for a figure of single runs."""
    if name not in FIGURES:
        raise unknown("figure", name, FIGURES)
    if seeds > 1 and not FIGURES[name].takes_seeds:
        several = ", ".join(figure.name for figure in FIGURES.values() if figure.takes_seeds)
        raise UsageError(
            f"--seeds {seeds} is for figures of numbers ({several}); {name} shows images of single runs"
        )
    return FIGURES[name]


def candidates(source: str, method: str) -> tuple[Trial, ...]:
    """List the settings of which the paper reports the best; a single one if there is no choice.

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


def trials_of(planned: PaperTable | PaperFigure, source: str, seeds: int = 1) -> tuple[Trial, ...]:
    """List every trial, once and in its canonical form, that one dataset's part of a table or figure needs.

    All settings of a table are scored on the test images with every seed, as in the paper. A main table also selects
    by validation: if there is a choice, each setting is also trained on a part of the training images and scored on
    the rest.

    >>> len(trials_of(FIGURES["heatmap"], "cifar100"))
    25
    """
    wanted = (
        _figure_trials(planned, seeds)
        if isinstance(planned, PaperFigure)
        else _table_trials(planned, source, seeds)
    )
    return tuple(dict.fromkeys(trial.canonical() for trial in wanted))


def with_seeds(trial: Trial, seeds: int) -> list[Trial]:
    """Repeat the trial with seeds 0, 1, ..."""
    return [replace(trial, seed=seed) for seed in range(seeds)]


def on_validation(trial: Trial) -> Trial:
    """Return the validation run of a trial, whose score may select w and tau."""
    return replace(trial, seed=CHOICE_SEED, evaluate_on="validation")


def _table_trials(table: PaperTable, source: str, seeds: int) -> Iterator[Trial]:
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


def _figure_trials(figure: PaperFigure, seeds: int) -> Iterator[Trial]:
    for trial in (*figure.trials, *(paper_trial(figure.sources[0], method) for method in figure.methods)):
        yield from with_seeds(trial, seeds)

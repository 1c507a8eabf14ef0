"""Which figures of the paper there are, the trials each needs, and the line that stands below it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from maskcon._utils.errors import UsageError, unknown
from maskcon.config.settings import RunConfig
from maskcon.data.builtin.registry import SOURCES
from maskcon.paper.plans import Trial, with_seeds
from maskcon.paper.scales import Ground
from maskcon.report.published import main_rows


@dataclass(frozen=True)
class PaperFigure:
    """A figure of the paper (or of its theory): the data set it is made on, None for one that needs no runs."""

    name: str
    title: str
    source: str | None
    methods: tuple[str, ...] = ()  # one run each, with the paper's settings for the data set
    takes_seeds: bool = False


FIGURES: dict[str, PaperFigure] = {
    figure.name: figure
    for figure in (
        PaperFigure("relations", "figure 1: relations of a batch", "cifartoy-good", ("maskcon",)),
        PaperFigure("heatmap", "figure 2: recall@1 over w and tau", "cifar100", takes_seeds=True),
        PaperFigure(
            "tsne",
            "figure 3: maps of the test images",
            "cifartoy-good",
            ("selfcon", "supcon", "grafit", "coins", "maskcon", "supfine"),
        ),
        PaperFigure(
            "retrieval",
            "figure 4: the ten nearest",
            "cars196",
            ("selfcon", "grafit", "coins", "maskcon", "supfine"),
        ),
        PaperFigure("sop-statistics", "appendix A: images of a product", None),
        PaperFigure("coarse-cars", "appendix A: the coarse classes of Cars196", None),
        PaperFigure("bound", "theorem 1: d_z over tau", "cifar100", takes_seeds=True),
    )
}

W_AXIS = (0.0, 0.2, 0.5, 0.8, 1.0)  # of figure 2, section 4.1
TAU_AXIS = (0.0, 0.01, 0.05, 0.1, 0.5, math.inf)
BOUND_W = 1.0  # where the relation is all that is learnt from
PLAIN_SECONDS = 4.0  # to read runs and draw
MAP_SECONDS_A_POINT = 0.0047  # of t-SNE, on two cores
REFERENCE_TAU = 0.1  # the run on whose keys d_z is drawn over tau: the paper's advice is tau = tau0


def figure_named(name: str) -> PaperFigure:
    """The figure of this name; a misspelt one is an error that names the nearest."""
    if name not in FIGURES:
        raise unknown("figure", name, FIGURES)
    return FIGURES[name]


def check_seeds(figure: PaperFigure, seeds: int) -> None:
    """Refuse several seeds where a figure shows one run a method, or none."""
    if seeds > 1 and not figure.takes_seeds:
        several = ", ".join(one.name for one in FIGURES.values() if one.takes_seeds)
        shows = "needs no run" if figure.source is None else "shows the images of single runs"
        raise UsageError(f"--seeds {seeds} is for figures of numbers ({several}); {figure.name} {shows}")


def trials_of(figure: PaperFigure, seeds: int = 1) -> tuple[Trial, ...]:
    """Every trial a figure needs, once each, as it is to be run; none for a figure of plain facts.

    >>> len(trials_of(figure_named("heatmap"))), [trial.name for trial in trials_of(figure_named("relations"))]
    (25, ['maskcon-w1-tau0.05-seed0'])
    """
    return tuple(
        dict.fromkeys(one.canonical() for trial in _wanted(figure) for one in with_seeds(trial, seeds))
    )


def drawing_seconds(figure: PaperFigure, ground: Ground) -> float:
    """About how long it takes to draw, once all runs are there: the maps of t-SNE by their points, others a moment.

    >>> from maskcon.paper.scales import ground_for
    >>> drawing_seconds(figure_named("retrieval"), ground_for("cars196"))
    4.0
    """
    if figure.name != "tsne":
        return PLAIN_SECONDS
    points = ground.settings.get("test_limit") or SOURCES[ground.source].info.counts[1]
    return PLAIN_SECONDS + MAP_SECONDS_A_POINT * points * len(figure.methods)


def paper_trial(source: str, method: str) -> Trial:
    """A method with the w and tau behind the paper's main table of a data set.

    >>> paper_trial("cars196", "maskcon").name
    'maskcon-w1-tau0.1-seed0'
    """
    row = next(row for row in main_rows(source) if row.method == method)
    return Trial(method, row.w, row.tau)


def caption_for(ground: Ground, config: RunConfig, result: Mapping[str, Any], seeds: int, words: str) -> str:
    """What is shown, on which data and how it was trained; a stand-in is named first."""
    stand_in = (
        f"STAND-IN: embedded pictures of clothes in place of {ground.asked}, which is not here; no result on it. "
        if ground.warning
        else ""
    )
    start = "random weights" if config.weights is None else f"weights {config.weights!r}"
    trained = (
        f"{ground.source}: {result['train_images']:,} training and {result['test_images']:,} test images; "
        f"{config.backbone} of width {config.width} from {start}, {config.epochs} epochs; scale {ground.scale}, "
        f"{'seed 0' if seeds == 1 else f'{seeds} seeds'}."
    )
    return f"{stand_in}{words} {trained}"


def _wanted(figure: PaperFigure) -> Iterator[Trial]:
    if figure.name == "heatmap":
        yield from (Trial("maskcon", w, tau) for w in W_AXIS for tau in TAU_AXIS)
    elif figure.name == "bound":
        yield from (Trial("maskcon", BOUND_W, tau) for tau in TAU_AXIS)
    elif figure.source is not None:
        yield from (paper_trial(figure.source, method) for method in figure.methods)

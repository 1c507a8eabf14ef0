"""The figures of the paper: which there are, which trials each needs, and how each is drawn."""

from __future__ import annotations

from pathlib import Path

from maskcon._utils.download import Progress
from maskcon._utils.errors import DataError, UsageError, unknown
from maskcon.data.builtin import cars196, sop
from maskcon.paper import dataset_figures, heatmap, relations, retrieval, tsne
from maskcon.paper.plans import Trial, paper_trial, with_seeds
from maskcon.paper.runs import Drawn, PaperFigure

FIGURES: dict[str, PaperFigure] = {
    figure.name: figure
    for figure in (
        PaperFigure(
            "relations",
            "figure 1: relations of a batch",
            "cifartoy-good",
            relations.draw,
            methods=("maskcon",),
        ),
        PaperFigure(
            "heatmap",
            "figure 2: recall@1 over w and tau",
            "cifar100",
            heatmap.draw,
            trials=heatmap.TRIALS,
            takes_seeds=True,
        ),
        PaperFigure(
            "tsne",
            "figure 3: maps of the test images",
            "cifartoy-good",
            tsne.draw,
            methods=("selfcon", "supcon", "grafit", "coins", "maskcon", "supfine"),
        ),
        PaperFigure(
            "retrieval",
            "figure 4: the ten nearest",
            "cars196",
            retrieval.draw,
            methods=("selfcon", "grafit", "coins", "maskcon", "supfine"),
        ),
    )
}
WITHOUT_RUNS = {
    "sop-statistics": (sop, dataset_figures.draw_sop),
    "coarse-cars": (cars196, dataset_figures.draw_cars),
}


def figure_named(name: str) -> PaperFigure | None:
    """Return the figure of this name, None for one that needs no run.

    Raises:
        UsageError: names the nearest figure where there is none of this name.
    """
    if name not in FIGURES and name not in WITHOUT_RUNS:
        raise unknown("figure", name, [*FIGURES, *WITHOUT_RUNS])
    return FIGURES.get(name)


def check_seeds(name: str, seeds: int) -> None:
    """Refuse several seeds for a figure that shows one run per method, or none."""
    figure = figure_named(name)
    if seeds > 1 and not (figure and figure.takes_seeds):
        several = ", ".join(one.name for one in FIGURES.values() if one.takes_seeds)
        shows = "needs no run" if figure is None else "shows the images of single runs"
        raise UsageError(f"--seeds {seeds} is for figures of numbers ({several}); {name} {shows}")


def trials_of(figure: PaperFigure, seeds: int = 1) -> tuple[Trial, ...]:
    """List every trial a figure needs, once each, in the form in which it is run.

    >>> len(trials_of(FIGURES["heatmap"])), [trial.name for trial in trials_of(FIGURES["relations"])]
    (25, ['maskcon-w1-tau0.05-seed0'])
    """
    wanted = (*figure.trials, *(paper_trial(figure.source, method) for method in figure.methods))
    return tuple(dict.fromkeys(one.canonical() for trial in wanted for one in with_seeds(trial, seeds)))


def draw_without_runs(
    name: str,
    root: Path,
    folder: Path,
    *,
    download: bool = False,
    progress: Progress | None = None,
) -> Drawn:
    """Draw `sop-statistics` or `coarse-cars`; a missing dataset is an error that says what is missing.

    Args:
        name: of the figure.
        root: folder of the datasets.
        folder: for the files of the figure.
        download: fetch the dataset; failing to is an error.
        progress: called with the bytes so far and in all.
    """
    dataset, draw = WITHOUT_RUNS[name]
    if not download and (absent := dataset.missing(root)):
        raise DataError(
            f"{name} needs the dataset itself; missing: {'; '.join(absent)}; another folder: --data-root"
        )
    return draw(root, folder / name, download=download, progress=progress)

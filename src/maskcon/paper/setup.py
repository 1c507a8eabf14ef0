"""What a figure of the paper is made from: its data, its finished runs, and where its files go."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import DataError
from maskcon._utils.files import write_atomically
from maskcon.api import Run, data_of
from maskcon.config.settings import Machine
from maskcon.data import Dataset
from maskcon.paper.plans import Ground, Trial, paper_trial
from maskcon.paper.runs import PlannedRun
from maskcon.report.figures import save
from maskcon.report.tables import METHOD_NAMES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Drawn = tuple[list[Path], str]  # the files written, and one line of what they show


@dataclass(frozen=True)
class PaperFigure:
    """A figure of the paper that needs runs: the dataset, the methods (one run each), the trials, how to draw it."""

    name: str
    title: str
    source: str
    draw: Callable[[Setup], Drawn]
    methods: tuple[str, ...] = ()  # with the paper's settings for the dataset
    trials: tuple[Trial, ...] = ()  # beyond those of the methods
    takes_seeds: bool = False


@dataclass(frozen=True)
class Setup:
    """A figure with its ground, its finished runs, and the folder for its files."""

    figure: PaperFigure
    ground: Ground
    runs: Mapping[Trial, PlannedRun]
    seeds: int
    folder: Path
    machine: Machine

    def open(self, trial: Trial) -> Run:
        return Run.open(self.runs[trial.canonical()].folder)

    def open_methods(self) -> dict[str, Run]:
        """Open the run of each method of the figure, by its title."""
        return {
            METHOD_NAMES[method]: self.open(paper_trial(self.figure.source, method))
            for method in self.figure.methods
        }

    def data_of(self, runs: Sequence[Run]) -> Dataset:
        """Load the data that all these runs were trained and scored on."""
        for run in runs:
            if run.result["data"] != runs[0].result["data"]:
                raise DataError(
                    f"{run.folder} was trained on other data than {runs[0].folder}; delete the older of the two folders"
                )
        return data_of(runs[0], self.machine)

    def labelled_data(self, runs: Sequence[Run]) -> tuple[Dataset, NDArray[np.int64]]:
        """Load the data of the runs, and the fine labels of their test images."""
        data = self.data_of(runs)
        if data.test.fine is None:
            raise DataError(f"{data.name} has no fine labels to colour or judge by")
        return data, data.test.fine

    def settings(self) -> str:
        """Describe the w and tau of the figure's methods."""
        trials = [paper_trial(self.figure.source, method) for method in self.figure.methods]
        described = [
            f"{METHOD_NAMES[trial.method]} w = {trial.w:g}"
            + ("" if trial.tau is None else f", τ = {trial.tau:g}")
            + _same_as(trial)
            for trial in trials
            if trial.w is not None
        ]
        return f"Settings of the paper's table: {'; '.join(described)}."

    def caption(self, run: Run, text: str) -> str:
        """Say what is shown, on which data and how it was trained; a stand-in is named first."""
        ground, config, result = self.ground, run.config, run.result
        stand_in = (
            f"STAND-IN: embedded images of clothes in place of {ground.asked}, which is not here; no result on it. "
            if ground.warning
            else ""
        )
        start = "random weights" if config.weights is None else f"weights {config.weights!r}"
        trained = (
            f"{ground.source}: {result['train_images']:,} training and {result['test_images']:,} test images; "
            f"{config.backbone} of width {config.width} from {start}, {config.epochs} epochs; scale {ground.scale}, "
            f"{'seed 0' if self.seeds == 1 else f'{self.seeds} seeds'}."
        )
        return f"{stand_in}{text} {trained}"

    def write(self, figure: Figure, extension: str, numbers: str) -> list[Path]:
        """Write the figure and, beside it, its numbers."""
        return write_figure(figure, self.folder / self.figure.name, extension, numbers)


def write_figure(figure: Figure, stem: Path, extension: str, numbers: str) -> list[Path]:
    """Write STEM.png, STEM.svg and the numbers as STEM.EXTENSION; returns the paths."""
    paths = [*save(figure, stem), stem.with_suffix(f".{extension}")]
    write_atomically(paths[-1], numbers.encode())
    return paths


def as_csv(header: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    """Format rows as CSV.

    >>> as_csv(["w", "tau"], [[1, 0.5]])
    'w,tau\\n1,0.5\\n'
    """
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows([header, *rows])
    return stream.getvalue()


def shown_tau(tau: float) -> str:
    return "∞" if tau == float("inf") else f"{tau:g}"


def _same_as(trial: Trial) -> str:
    """Name the method without a w that shares this trial's run, if any.

    >>> _same_as(Trial("coins", 1.0)), _same_as(Trial("coins", 0.8))
    (' (that is SupCE)', '')
    """
    same = [name for name in ("selfcon", "supcon", "supce") if Trial(name).canonical() == trial.canonical()]
    return f" (that is {METHOD_NAMES[same[0]]})" if same else ""

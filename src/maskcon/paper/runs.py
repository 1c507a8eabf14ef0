"""Trials as runs: each in a folder of its name, trained by `maskcon train` unless finished.

`Setup` holds the input of a figure: its finished runs, their data, and the folder for its files.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import DataError
from maskcon._utils.files import write_atomically
from maskcon.api import Run, data_of
from maskcon.config.resolution import resolve
from maskcon.config.settings import Machine, RunConfig
from maskcon.data import Dataset
from maskcon.paper.ground import Ground
from maskcon.paper.plans import PaperFigure, Trial, paper_trial
from maskcon.report.figures import save
from maskcon.report.tables import METHOD_NAMES
from maskcon.training.callbacks import Callback
from maskcon.training.comparison import Job
from maskcon.training.run_folder import is_finished, read_result
from maskcon.training.runner import refuse_others
from maskcon.training.setup import load_dataset, settle

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class PlannedRun:
    """One trial on its ground, and the folder where it is or will be."""

    trial: Trial
    ground: Ground
    folder: Path

    @property
    def label(self) -> str:
        return f"{self.ground.source} {self.trial.name}"

    @property
    def settings(self) -> dict[str, Any]:
        """Return the settings that differ from the preset."""
        own = {"w": self.trial.w, "tau": self.trial.tau}
        given = {key: value for key, value in own.items() if value is not None}
        return {
            **self.ground.settings,
            **given,
            "seed": self.trial.seed,
            "evaluate_on": self.trial.evaluate_on,
        }

    @cached_property
    def config(self) -> RunConfig:
        """Resolve all settings, before those that depend on the data."""
        ground = self.ground
        method = self.trial.method
        return resolve(ground.source, method=method, preset=ground.preset, overrides=self.settings).config

    def job(self, machine: Machine) -> Job:
        """Return the `maskcon train` job of the run."""
        arguments = [self.ground.source, "--method", self.trial.method, "--preset", self.ground.preset]
        for key, value in self.settings.items():
            arguments += ["--set", f"{key}={'none' if value is None else value}"]
        arguments += ["--device", machine.device]
        arguments += [] if machine.data_root is None else ["--data-root", machine.data_root]
        arguments += ["--download"] if machine.download else []
        return Job(self.label, self.folder, arguments)

    def result(self) -> dict[str, Any]:
        """Read `result.json` of the finished run."""
        return read_result(self.folder)


def runs_for(trials: Iterable[Trial], ground: Ground, *, out: Path) -> dict[Trial, PlannedRun]:
    """Plan the run of each trial; several trials may share one (`Trial.canonical`). Nothing is started.

    >>> from maskcon.paper.ground import ground_for
    >>> wanted = [Trial("supcon"), Trial("grafit", 1.0)]
    >>> runs = runs_for(wanted, ground_for("embedded"), out=Path("runs"))
    >>> {str(run.folder) for run in runs.values()}
    {'runs/cpu/embedded/grafit-w1-seed0'}
    """
    planned: dict[Trial, PlannedRun] = {}
    for trial in trials:
        real = trial.canonical()
        planned[trial] = PlannedRun(real, ground, out / ground.folder / real.name)
    return planned


def unfinished(
    runs: Iterable[PlannedRun], machine: Machine, callback: Callback | None = None
) -> tuple[list[PlannedRun], list[PlannedRun]]:
    """Split the runs, without duplicates, into those still to be trained and the finished ones.

    Reads each dataset once, so that missing or damaged data are reported before anything starts, and only one process
    converts a large dataset. A folder that holds a run with other settings, or on other data, is refused.
    """
    data: dict[str, Dataset] = {}
    waiting: list[PlannedRun] = []
    finished: list[PlannedRun] = []
    fingerprints: dict[tuple[Any, ...], str] = {}
    for run in {run.folder: run for run in runs}.values():
        source, config = run.ground.source, run.config
        if source not in data:
            whole = config.changed(train_limit=None, test_limit=None, evaluate_on="test")
            data[source] = load_dataset(source, whole, machine, callback or Callback())
        if not is_finished(run.folder, settle(config, data[source])):
            waiting.append(run)
            continue
        cut = (source, config.train_limit, config.test_limit, config.evaluate_on)
        if cut not in fingerprints:  # a finished run must have used the same images
            fingerprints[cut] = load_dataset(data[source], config, machine, Callback()).fingerprint()
        refuse_others(run.folder, run.result(), {"data": fingerprints[cut]})
        finished.append(run)
    return waiting, finished


def expected_seconds(
    waiting: Sequence[PlannedRun], finished: Sequence[PlannedRun], *, at_once: int
) -> float | None:
    """Estimate the time to train the waiting runs from that of finished ones; None without finished ones."""
    spent = [float(run.result().get("seconds") or 0) for run in finished]
    return fmean(spent) * math.ceil(len(waiting) / at_once) if any(spent) else None


def start_of(config: RunConfig) -> str:
    """Name the weights that training starts from."""
    return "random weights" if config.weights is None else f"weights {config.weights!r}"


Drawn = tuple[list[Path], str]  # the files written, and a one-line summary


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
            METHOD_NAMES[method]: self.open(paper_trial(self.figure.sources[0], method))
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
        trials = [paper_trial(self.figure.sources[0], method) for method in self.figure.methods]
        described = [
            f"{METHOD_NAMES[trial.method]} w = {trial.w:g}"
            + ("" if trial.tau is None else f", τ = {trial.tau:g}")
            for trial in trials
            if trial.w is not None
        ]
        return f"Settings of the paper's table: {'; '.join(described)}."

    def caption(self, run: Run, text: str) -> str:
        """Add data and training to the text of a caption; a stand-in is named first."""
        ground, config, result = self.ground, run.config, run.result
        stand_in = (
            f"STAND-IN: embedded images of clothes in place of {ground.asked}, which is not here; no result on it. "
            if ground.warning
            else ""
        )
        trained = (
            f"{ground.source}: {result['train_images']:,} training and {result['test_images']:,} test images; "
            f"{config.backbone} of width {config.width} from {start_of(config)}, {config.epochs} epochs; "
            f"scale {ground.scale}, {'seed 0' if self.seeds == 1 else f'{self.seeds} seeds'}."
        )
        return f"{stand_in}{text} {trained}"

    def write(self, figure: Figure, numbers: Mapping[str, Any]) -> list[Path]:
        """Write the figure as PNG and SVG, and its numbers as JSON; return the paths."""
        stem = self.folder / self.figure.name
        paths = [*save(figure, stem), stem.with_suffix(".json")]
        write_atomically(paths[-1], (json.dumps(numbers, indent=1, allow_nan=False) + "\n").encode())
        return paths

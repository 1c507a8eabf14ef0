"""Trials as runs: one folder each, found by its name, trained by `maskcon train` unless finished."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from maskcon.config.resolution import resolve
from maskcon.config.settings import VALIDATION_FRACTION, Machine, RunConfig
from maskcon.data import Dataset
from maskcon.paper.plans import Ground, Trial
from maskcon.training.callbacks import Callback
from maskcon.training.comparison import Job, run_jobs
from maskcon.training.run_folder import as_begun, is_finished, read_result
from maskcon.training.runner import refuse_other_data
from maskcon.training.setup import load_dataset, settle


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

    >>> from maskcon.paper.plans import ground_for
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
    runs: Iterable[PlannedRun], machine: Machine, announce: Callback | None = None
) -> tuple[list[PlannedRun], dict[Path, int]]:
    """List the runs still to be trained, once each, and how many images each trains on.

    Reads each dataset once, so that missing or damaged data are reported before anything starts, and a large dataset
    is converted by one process only. A folder that holds a run with other settings, or on other data, is refused.
    """
    data: dict[str, Dataset] = {}
    waiting: dict[Path, PlannedRun] = {}
    images: dict[Path, int] = {}
    fingerprints: dict[tuple[Any, ...], str] = {}
    for run in runs:
        if run.folder in images:
            continue
        if run.ground.source not in data:
            whole = run.config.changed(train_limit=None, test_limit=None, evaluate_on="test")
            data[run.ground.source] = load_dataset(run.ground.source, whole, machine, announce or Callback())
        here = data[run.ground.source]
        images[run.folder] = _training_images(run.config, len(here.train))
        if not is_finished(run.folder, settle(as_begun(run.config, run.folder), here)):
            waiting[run.folder] = run
            continue
        config = run.config
        cut = (run.ground.source, config.train_limit, config.test_limit, config.evaluate_on)
        if cut not in fingerprints:  # a finished run must be of these same images
            fingerprints[cut] = load_dataset(here, config, machine, Callback()).fingerprint()
        refuse_other_data(run.folder, run.result().get("data"), fingerprints[cut])
    return list(waiting.values()), images


class Watcher(Protocol):
    def show(self, jobs: Sequence[Job]) -> None: ...


def carry_out(
    runs: Sequence[PlannedRun],
    machine: Machine,
    *,
    at_once: int,
    watch: Callable[[Sequence[Job]], AbstractContextManager[Watcher]],
) -> None:
    """Train every run, `at_once` at a time with `machine.threads` each; call again to resume.

    Args:
        runs: those to train, as `unfinished` gives them.
        machine: where the data are and what to compute on.
        at_once: processes side by side.
        watch: given the jobs, a context whose `show(jobs)` is called as they progress.
    """
    if not runs:
        return
    jobs = [run.job(machine) for run in runs]
    with watch(jobs) as watcher:
        run_jobs(jobs, at_once=min(at_once, len(jobs)), threads=machine.threads, watch=watcher.show)


def mean_recall(results: Sequence[Mapping[str, Any]], k: int = 1) -> float:
    """Average recall@k over runs, a share in 0..1."""
    return statistics.fmean(float(result["recall"][str(k)]) for result in results)


def _training_images(config: RunConfig, whole: int) -> int:
    kept = round(whole * (1 - VALIDATION_FRACTION)) if config.evaluate_on == "validation" else whole
    return min(kept, config.train_limit or kept)

"""`maskcon compare`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from maskcon.cli import options
from maskcon.errors import UsageError

if TYPE_CHECKING:
    from maskcon.comparison import Job


def compare(
    source: options.Source,
    methods: Annotated[
        str, typer.Option(help="Methods to compare, comma-separated; all by default.", metavar="A,B,...")
    ] = "all",
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each method, with seeds 0, 1, ...")] = 1,
    preset: options.Preset = "cpu",
    epochs: options.Epochs = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of all runs; by default runs/compare-SOURCE.")
    ] = None,
    settings: options.Settings = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Runs at once; by default one a core on a CPU, else 1.")
    ] = None,
    data_root: options.DataRoot = None,
    device: options.Device = "auto",
) -> None:
    """Train several methods on the same data and print one table, with raw pixels as the floor.

    Each run has its own folder and goes on where it was stopped; the report shows table, curves, maps, retrieval.

    Example: `maskcon compare embedded --methods maskcon,grafit,supce --seeds 3`
    """
    from maskcon.methods import all_methods, method_named
    from maskcon.presets import resolve

    names = [m.name for m in all_methods()] if methods == "all" else [m.strip() for m in methods.split(",")]
    overrides = options.parse_settings(settings)
    if epochs is not None:
        overrides["epochs"] = epochs
    for name in names:  # misspelt names and bad values are refused before anything starts
        resolve(source, method=method_named(name).name, preset=preset, overrides=overrides)
    target = out or Path("runs") / f"compare-{Path(source).name}"
    pairs = [f"{key}={'none' if value is None else value}" for key, value in overrides.items()]
    common = [source, "--preset", preset, "--device", device, *(a for pair in pairs for a in ("--set", pair))]
    if data_root is not None:
        common += ["--data-root", data_root]
    plans = [(name.lower(), seed) for seed in range(seeds) for name in names]
    command = f"maskcon compare {source} --methods {','.join(names)} --seeds {seeds} --preset {preset}"
    command += "".join(f" --set {pair}" for pair in pairs)
    run_and_report(
        [
            (
                f"{name} seed {seed}",
                target / f"{name}-seed{seed}",
                [*common, "--method", name, "--seed", str(seed)],
            )
            for name, seed in plans
        ],
        target,
        command=command,
        jobs=jobs,
        data_root=data_root,
        device=device,
    )


def run_and_report(
    plans: Sequence[tuple[str, Path, Sequence[str]]],
    target: Path,
    *,
    command: str,
    jobs: int | None,
    data_root: str | None = None,
    device: str = "auto",
    title: str = "",
) -> None:
    """Run (label, folder, arguments of train) each, then print the table and write the report."""
    from maskcon.comparison import Job, run_jobs

    at_once, threads = _sharing(jobs, device)
    todo = [Job(label, folder, arguments) for label, folder, arguments in plans]
    if target.exists() and not target.is_dir():
        raise UsageError(f"{target} is a file; choose another --out")
    with _Bars(todo) as bars:
        run_jobs(todo, at_once=min(at_once, len(todo)), threads=threads, watch=bars.show)
    from rich.console import Console

    from maskcon.report.tables import methods_table
    from maskcon.run_folder import read_result
    from maskcon.summary import write_summary

    results: list[Mapping[str, Any]] = [read_result(job.folder) for job in todo]
    typer.echo(methods_table(results).text())
    with Console(stderr=True).status("writing the report (map, retrieval, curves)"):
        page = write_summary(
            [job.folder for job in todo],
            target,
            machine=options.machine(data_root=data_root),
            command=command,
            title=title,
        )
    typer.echo(f"\nreport: {page}")


def _sharing(jobs: int | None, device: str) -> tuple[int, int | None]:
    """Runs at once and threads for each: small nets train best one to a core."""
    cores = os.cpu_count() or 1
    if jobs is None:
        import torch

        jobs = 1 if device != "cpu" and torch.cuda.is_available() else cores
    return jobs, max(1, cores // jobs)


class _Bars:
    """A progress bar for all runs together, or a line at each tenth without a terminal."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        self.jobs = jobs
        self.console = Console(stderr=True, highlight=False)
        self._told = -1
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn(),
            TextColumn("left"), console=self.console, disable=not self.console.is_terminal,
        )  # fmt: skip
        self._task = self._bar.add_task("starting", total=float(len(jobs)))

    def __enter__(self) -> _Bars:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, jobs: Sequence[Job]) -> None:
        done = sum(job.share for job in jobs)
        active = [job.label for job in jobs if job.process is not None and job.process.poll() is None]
        text = f"{sum(job.finished for job in jobs)} of {len(jobs)} runs done; now {', '.join(active) or '-'}"
        self._bar.update(self._task, completed=done, description=text)
        tenth = int(10 * done / len(jobs))
        if not self.console.is_terminal and tenth > self._told:
            self._told = tenth
            self.console.print(f"{10 * tenth} %: {text}")

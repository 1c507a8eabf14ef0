"""`maskcon reproduce`: plan the runs of a table or figure, train those that are missing, compare with the paper."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from maskcon._utils.errors import UsageError, unknown
from maskcon._utils.text import counted, duration
from maskcon.cli import options
from maskcon.cli.progress import Meter, show_runs

if TYPE_CHECKING:
    from maskcon.config.settings import Machine
    from maskcon.paper.plans import Ground
    from maskcon.paper.runs import PlannedRun

reproduce = typer.Typer(
    name="reproduce",
    help="Reproduce the paper's tables and figures: at full scale, or at a stated small one on any machine.",
)

OUT = Path("runs/reproduce")
Scale = Annotated[
    str,
    typer.Option(help="cpu: a stated small part, minutes on two cores; full: the paper's size, on its data."),
]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder of the runs, tables and figures.")]
Seeds = Annotated[int, typer.Option(min=1, help="Runs of each setting, with seeds 0, 1, ...")]
FullPreset = Annotated[
    str | None, typer.Option(help="At scale full: paper (if not given), or reference (the published code).")
]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="List the missing runs and how long they take, without starting any."),
]


@reproduce.command()
@options.with_quiet
def table(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="cifartoy, cifar100, imagenet32, sop1, sop2 or cars196; with `appendix-` before it (all but "
            "imagenet32) the appendix's table.",
        ),
    ],
    scale: Scale = "cpu",
    seeds: Seeds = 1,
    preset: FullPreset = None,
    out: Out = OUT,
    settings: options.Settings = None,
    jobs: options.Jobs = None,
    data_root: options.DataRoot = None,
    download: options.Download = False,
    device: options.Device = "auto",
    dry_run: DryRun = False,
    as_json: options.Json = False,
) -> None:
    """Run what a table of the paper needs, and print our results beside the paper's with the difference.

    Rerun the same command to resume; tables share their runs. The table is written as text, Markdown, LaTeX and CSV.

    Example: `maskcon reproduce table cifar100 --scale cpu --seeds 3`
    """
    from maskcon.paper.plans import ground_for, table_named, trials_for

    wanted = table_named(name)
    changes = options.parse_settings(settings)
    grounds = [
        ground_for(
            source, scale=scale, preset=preset, data_root=data_root, download=download, changes=changes
        )
        for source in wanted.sources
    ]
    from maskcon.paper.runs import runs_for

    parts = [
        (ground, runs_for(trials_for(wanted, ground.asked, seeds), ground, out=out)) for ground in grounds
    ]
    planned = [run for _, runs in parts for run in runs.values()]
    machine = train_missing(
        planned, grounds, jobs, dry_run=dry_run, data_root=data_root, device=device, download=download
    )
    if machine is None:
        return
    from maskcon.paper.table import as_records, section_for, text_of, write_files

    sections = [section_for(wanted, ground, runs, seeds) for ground, runs in parts]
    typer.echo(json.dumps(as_records(sections)) if as_json else text_of(sections))
    files = write_files(out / grounds[0].folder.parent / "tables", name, sections)
    typer.echo(f"\nwritten: {', '.join(str(path) for path in files)}", err=as_json)


@reproduce.command()
@options.with_quiet
def figure(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="relations, heatmap, tsne, retrieval, sop-statistics or coarse-cars.",
        ),
    ],
    scale: Scale = "cpu",
    seeds: Seeds = 1,
    preset: FullPreset = None,
    out: Out = OUT,
    settings: options.Settings = None,
    jobs: options.Jobs = None,
    data_root: options.DataRoot = None,
    download: options.Download = False,
    device: options.Device = "auto",
    dry_run: DryRun = False,
    as_json: options.Json = False,
) -> None:
    """Run what a figure of the paper needs, and draw it as PNG and SVG with its numbers beside.

    Figures and tables share their runs; rerun the same command to resume.

    Example: `maskcon reproduce figure heatmap --scale cpu`
    """
    from maskcon.paper.figures import check_seeds, figure_named, trials_of
    from maskcon.paper.plans import ground_for

    wanted = figure_named(name)
    check_seeds(name, seeds)
    if wanted is None:
        if settings or preset is not None:
            raise UsageError(f"{name} needs no run, so --set and --preset have nothing to change")
        _draw_without_runs(name, scale, out, data_root, download=download, dry_run=dry_run, as_json=as_json)
        return
    changes = options.parse_settings(settings)
    ground = ground_for(
        wanted.source, scale=scale, preset=preset, data_root=data_root, download=download, changes=changes
    )
    from maskcon.paper.runs import runs_for

    runs = runs_for(trials_of(wanted, seeds), ground, out=out)
    machine = train_missing(
        list(runs.values()),
        [ground],
        jobs,
        dry_run=dry_run,
        data_root=data_root,
        device=device,
        download=download,
    )
    if machine is None:
        return
    from maskcon.paper.runs import Setup

    _say(f"drawing {wanted.title} ...")
    started = time.monotonic()
    setup = Setup(wanted, ground, runs, seeds, out / ground.folder.parent / "figures", machine)
    _tell(*wanted.draw(setup), started, as_json=as_json)


def train_missing(
    runs: Sequence[PlannedRun],
    grounds: Iterable[Ground],
    jobs: int | None,
    *,
    dry_run: bool,
    **place: str | bool | None,
) -> Machine | None:
    """Train the missing runs; the time they take is estimated from finished ones.

    Args:
        runs: all runs of a table or figure.
        grounds: the data they run on; the warning of each stand-in is printed.
        jobs: runs at once, None for the default.
        dry_run: train nothing, list the missing runs.
        place: `data_root`, `device` and `download`.

    Returns:
        The machine that the runs were trained on; None for a dry run.
    """
    from maskcon.cli.terminal import Terminal
    from maskcon.paper.runs import expected_seconds, unfinished
    from maskcon.training import comparison
    from maskcon.training.run_folder import make_writable

    at_once, threads = options.sharing(jobs, str(place["device"]), len({run.folder for run in runs}))
    machine = options.machine(threads=threads, **place)
    for ground in grounds:
        if ground.warning:
            typer.secho(ground.warning, err=True, bold=True, fg="red")
    waiting, finished = unfinished(runs, machine, Terminal())
    _say(f"{counted(len(waiting) + len(finished), 'run')}, {len(finished)} of them finished already")
    if waiting:
        at_once = min(at_once, len(waiting))
        expected = expected_seconds(waiting, finished, at_once=at_once)
        about = "known once a run is finished" if expected is None else f"about {duration(expected)}"
        _say(f"expected: {about}, for {counted(len(waiting), 'run')}, {at_once} at a time")
    if dry_run:
        for run in waiting:
            typer.echo(run.label)
        return None
    if waiting:
        make_writable(waiting[0].folder.parent)
        started = time.monotonic()
        with Meter("training", "runs") as meter:
            comparison.run_jobs(
                [run.job(machine) for run in waiting],
                at_once=at_once,
                threads=threads,
                watch=partial(show_runs, meter),
            )
        _say(f"took {duration(time.monotonic() - started)}")
    return machine


def _draw_without_runs(
    name: str, scale: str, out: Path, data_root: str | None, *, download: bool, dry_run: bool, as_json: bool
) -> None:
    from maskcon.data import data_root as folder_of
    from maskcon.paper.figures import draw_without_runs
    from maskcon.paper.plans import SCALES

    if scale not in SCALES:
        raise unknown("scale", scale, SCALES)
    if dry_run:
        _say("needs no run; drawing takes a few seconds")
        return
    root = folder_of(None if data_root is None else Path(data_root))
    started = time.monotonic()
    folder = out / scale / "figures"
    with Meter("fetching", "MB", 1e6) as fetching:
        drawn = draw_without_runs(name, root, folder, download=download, progress=fetching.show)
    _tell(*drawn, started, as_json=as_json)


def _tell(files: Sequence[Path], text: str, started: float, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"files": [str(path) for path in files], "text": text}))
        return
    typer.echo(text)
    typer.echo(f"written in {duration(time.monotonic() - started)}: {', '.join(str(path) for path in files)}")


def _say(text: str) -> None:
    typer.echo(text, err=True)

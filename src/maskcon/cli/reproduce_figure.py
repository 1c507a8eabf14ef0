"""`maskcon reproduce figure`: the paper's figures, made again from runs that tables and figures share."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from maskcon.cli import options
from maskcon.cli.pack import Meter
from maskcon.cli.reproduce import (
    OUT,
    DryRun,
    FullPreset,
    Jobs,
    Out,
    Scale,
    Seeds,
    say,
    train_missing,
    warn,
)
from maskcon.cli.side_by_side import sharing


def figure(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="relations, heatmap, tsne, retrieval, sop-statistics, coarse-cars or bound.",
        ),
    ],
    scale: Scale = "cpu",
    seeds: Seeds = 1,
    preset: FullPreset = None,
    out: Out = OUT,
    settings: options.Settings = None,
    jobs: Jobs = None,
    data_root: options.DataRoot = None,
    download: options.Download = False,
    device: options.Device = "auto",
    dry_run: DryRun = False,
) -> None:
    """Run what a figure of the paper needs, and draw it as PNG and SVG with its numbers beside.

    Figures and tables share their runs; the same command again goes on where it was stopped.

    Example: `maskcon reproduce figure heatmap --scale cpu`
    """
    from maskcon._utils.errors import UsageError
    from maskcon.paper.figures import check_seeds, drawing_seconds, figure_named, trials_of
    from maskcon.paper.scales import ground_for
    from maskcon.paper.timing import spoken

    wanted = figure_named(name)
    check_seeds(wanted, seeds)
    if wanted.source is None:
        if settings or preset is not None:
            raise UsageError(f"{name} needs no run, so --set and --preset have nothing to change")
        _facts(name, scale, out, data_root, download=download, dry_run=dry_run)
        return
    ground = ground_for(
        wanted.source,
        scale=scale,
        preset=preset,
        data_root=data_root,
        download=download,
        changes=options.parse_settings(settings),
    )
    from maskcon.paper.runs import runs_for

    runs = runs_for(trials_of(wanted, seeds), ground, out=out)
    at_once, threads = sharing(jobs, device, len({run.folder for run in runs.values()}))
    machine = options.machine(data_root=data_root, device=device, threads=threads, download=download)
    warn([ground])
    drawing = spoken(drawing_seconds(wanted, ground))
    if not train_missing(
        list(runs.values()), machine, at_once, dry_run=dry_run, afterwards=f", then {drawing} to draw"
    ):
        return
    from maskcon.paper.pictures import Setup, make

    say(f"drawing {wanted.title}, about {drawing} ...")
    begun = time.monotonic()
    setup = Setup(wanted, ground, runs, seeds, out / ground.folder.parent / "figures", machine)
    _tell(*make(setup), begun)


def _facts(name: str, scale: str, out: Path, data_root: str | None, *, download: bool, dry_run: bool) -> None:
    """A figure without runs."""
    from maskcon._utils.errors import unknown
    from maskcon.data import data_root as folder_of
    from maskcon.paper.facts import make_facts
    from maskcon.paper.scales import SCALES

    if scale not in SCALES:
        raise unknown("scale", scale, SCALES)
    if dry_run:
        say("no run is needed; it is drawn in a few seconds")
        return
    root = folder_of(None if data_root is None else Path(data_root))
    begun = time.monotonic()
    folder = out / scale / "figures"
    with Meter("fetching", "MB", 1e6) as fetching:
        files, said = make_facts(name, root, folder, scale=scale, download=download, progress=fetching.show)
    _tell(files, said, begun)


def _tell(files: list[Path], said: str, begun: float) -> None:
    from maskcon.paper.timing import spoken

    typer.echo(said)
    typer.echo(f"written in {spoken(time.monotonic() - begun)}: {', '.join(str(path) for path in files)}")

"""`maskcon reproduce`: plan the runs of a table or figure, train the missing ones, compare with the paper."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from maskcon._utils.text import counted, duration
from maskcon.cli import options
from maskcon.cli.printing import echo
from maskcon.cli.progress import Meter, show_runs

if TYPE_CHECKING:
    from maskcon.config.settings import Machine
    from maskcon.paper.runs import PlannedRun

OUT = Path("runs/reproduce")


class Kind(StrEnum):
    """What to reproduce."""

    table = "table"
    figure = "figure"


def reproduce(
    kind: Annotated[Kind, typer.Argument(metavar="table|figure", help="What to reproduce.")],
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Tables: cifartoy, cifar100, imagenet32, sop1, sop2, cars196; with `appendix-` before it (all but "
            "imagenet32) the appendix's table. Figures: relations, heatmap, tsne, retrieval, sop-statistics, "
            "coarse-cars.",
        ),
    ],
    scale: Annotated[
        str,
        typer.Option(help="cpu: a small part, minutes on two cores; full: the paper's size, on its data."),
    ] = "cpu",
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each setting, with seeds 0, 1, ...")] = 1,
    preset: Annotated[
        str | None,
        typer.Option(help="With --scale full: paper (the default), or reference (the published code)."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the runs, tables and figures.")] = OUT,
    settings: options.Settings = None,
    jobs: options.Jobs = None,
    data_root: options.DataRoot = None,
    download: options.Download = False,
    device: options.Device = "auto",
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="List the missing runs and how long they take, without starting any."),
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Reproduce a table or figure of the paper.

    Trains the missing runs and compares our results with the paper's.

    Tables are printed with the difference from the paper and written as text, Markdown, LaTeX and CSV; figures are
    drawn as PNG and SVG with their numbers as JSON. Both share their runs; rerun the same command to resume.

    Example: `maskcon reproduce table cifar100 --seeds 3`, `maskcon reproduce figure heatmap --dry-run`
    """
    from maskcon.paper.ground import ground_for
    from maskcon.paper.plans import PaperTable, figure_named, table_named, trials_of

    wanted = table_named(name) if kind == Kind.table else figure_named(name, seeds)
    changes = options.parse_settings(settings)
    if not trials_of(wanted, wanted.sources[0]):
        scale, preset = "full", "paper"  # a figure of the dataset itself
    grounds = [
        ground_for(
            source, scale=scale, preset=preset, data_root=data_root, download=download, changes=changes
        )
        for source in wanted.sources
    ]
    from maskcon.paper.runs import Setup, runs_for

    runs = [runs_for(trials_of(wanted, ground.asked, seeds), ground, out=out) for ground in grounds]
    planned = [run for part in runs for run in part.values()]
    at_once, threads = options.sharing(jobs, device, len({run.folder for run in planned}))
    machine = options.machine(threads=threads, data_root=data_root, device=device, download=download)
    for ground in grounds:
        if ground.warning:
            echo(ground.warning, err=True, bold=True, fg="red")
    if not _train_missing(planned, machine, at_once, dry_run=dry_run):
        return
    folder = out / grounds[0].folder.parent
    if isinstance(wanted, PaperTable):
        from maskcon.paper.table import as_records, section_for, text_of, write_files

        parts = [section_for(wanted, *pair, seeds) for pair in zip(grounds, runs, strict=True)]
        echo(json.dumps(as_records(parts)) if as_json else text_of(parts))
        files = write_files(folder / "tables", name, parts)
    else:
        from maskcon.paper.figures import DRAWN_BY

        echo(f"drawing {wanted.title} ...", err=True)
        setup = Setup(wanted, grounds[0], runs[0], seeds, folder / "figures", machine)
        files, text = DRAWN_BY[name](setup)
        echo(json.dumps({"files": [str(path) for path in files], "text": text}) if as_json else text)
    echo(f"written: {', '.join(str(path) for path in files)}", err=as_json)


def _train_missing(runs: Sequence[PlannedRun], machine: Machine, at_once: int, *, dry_run: bool) -> bool:
    """Train the missing runs and estimate their time from finished ones; return False for a dry run."""
    from maskcon.cli.terminal import Terminal
    from maskcon.paper.runs import expected_seconds, unfinished
    from maskcon.training import comparison
    from maskcon.training.run_folder import make_writable

    def say(text: str) -> None:
        echo(text, err=True)

    waiting, finished = unfinished(runs, machine, Terminal())
    say(f"{counted(len(waiting) + len(finished), 'run')}, {len(finished)} of them finished already")
    at_once = min(at_once, max(1, len(waiting)))
    if waiting:
        expected = expected_seconds(waiting, finished, at_once=at_once)
        about = "known once a run is finished" if expected is None else f"about {duration(expected)}"
        say(f"expected: {about}, for {counted(len(waiting), 'run')}, {at_once} at a time")
    if dry_run:
        for run in waiting:
            echo(run.label)
    elif waiting:
        make_writable(waiting[0].folder.parent)
        started = time.monotonic()
        with Meter("training", "runs") as meter:
            comparison.run_jobs(
                [run.job(machine) for run in waiting],
                at_once=at_once,
                threads=machine.threads or 1,
                watch=partial(show_runs, meter),
            )
        say(f"took {duration(time.monotonic() - started)}")
    return not dry_run

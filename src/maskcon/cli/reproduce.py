"""`maskcon reproduce table`: what the paper shows, made again. Each command plans runs, trains those that are
missing, and lays ours beside the paper's.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from maskcon.cli import options
from maskcon.cli.side_by_side import Bars, sharing

if TYPE_CHECKING:
    from maskcon.config.settings import Machine
    from maskcon.paper.runs import PlannedRun
    from maskcon.paper.scales import Ground

reproduce = typer.Typer(
    name="reproduce",
    help="Make the paper's tables and figures again: at full scale, or a stated small one on any machine.",
)

OUT = Path("runs/reproduce")
Scale = Annotated[
    str,
    typer.Option(help="cpu: a stated small part, minutes on two cores; full: the paper's size, on its data."),
]
Out = Annotated[Path, typer.Option(help="Folder of the runs, which tables and figures share, and of both.")]
Jobs = Annotated[
    int | None, typer.Option(min=1, help="Runs at once; by default one a core on a CPU, else 1.")
]
Seeds = Annotated[int, typer.Option(min=1, help="Runs of each setting, with seeds 0, 1, ...")]
FullPreset = Annotated[
    str | None, typer.Option(help="At scale full: paper (if not given), or reference (the published code).")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say which runs are missing and how long they take; start none.")
]


@reproduce.command()
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
    jobs: Jobs = None,
    data_root: options.DataRoot = None,
    download: options.Download = False,
    device: options.Device = "auto",
    dry_run: DryRun = False,
) -> None:
    """Run what a table of the paper needs, and print ours beside the paper's with the difference.

    The same command again goes on where it was stopped; tables share their runs. The table is written as text,
    Markdown, LaTeX and CSV.

    Example: `maskcon reproduce table cifar100 --scale cpu --seeds 3`
    """
    from maskcon.paper.plans import table_named, trials_for
    from maskcon.paper.scales import ground_for

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
    at_once, threads = sharing(jobs, device, len({run.folder for run in planned}))
    machine = options.machine(data_root=data_root, device=device, threads=threads, download=download)
    warn(grounds)
    if not train_missing(planned, machine, at_once, dry_run=dry_run):
        return
    from maskcon.paper.table import section_for, text_of, write_files

    sections = [section_for(wanted, ground, runs, seeds) for ground, runs in parts]
    typer.echo(text_of(sections))
    files = write_files(out / grounds[0].folder.parent / "tables", name, sections)
    typer.echo(f"\nwritten: {', '.join(str(path) for path in files)}")


def warn(grounds: Sequence[Ground]) -> None:
    """The loud line of each stand-in."""
    for ground in grounds:
        if ground.warning:
            typer.secho(ground.warning, err=True, bold=True, fg="red")


def train_missing(
    runs: Sequence[PlannedRun], machine: Machine, at_once: int, *, dry_run: bool, afterwards: str = ""
) -> bool:
    """State how long the missing runs will take, then train them; False for a dry run, which trains nothing.

    afterwards: what is still to come then, to be stated with it, such as ", then 24 seconds to draw".
    """
    from maskcon.cli.terminal import Terminal
    from maskcon.paper.runs import carry_out, unfinished
    from maskcon.paper.timing import expected_seconds, measure, spoken
    from maskcon.training.run_folder import make_writable

    waiting, images = unfinished(runs, machine, Terminal())
    say(f"{_runs(len(images))}, {len(images) - len(waiting)} of them finished already")
    if waiting:
        if not dry_run:
            make_writable(waiting[0].folder.parent)  # or be refused now, not after the measurement
        at_once = min(at_once, len(waiting))
        say(f"measuring this machine with {at_once} process{'' if at_once == 1 else 'es'} ...")
        first = {run.ground.source: run for run in reversed(waiting)}  # one of each data set
        paces = {source: measure(run, machine, at_once=at_once) for source, run in first.items()}
        expected = expected_seconds(waiting, images, paces, at_once=at_once)
        say(f"expected: {spoken(expected)} for {_runs(len(waiting))}, {at_once} at a time{afterwards}")
        if not dry_run:
            begun = time.monotonic()
            carry_out(waiting, machine, at_once=at_once, watch=Bars)
            say(f"took {spoken(time.monotonic() - begun)}; {spoken(expected)} were expected")
    if dry_run:
        for run in waiting:
            typer.echo(run.label)
    return not dry_run


def _runs(count: int) -> str:
    return f"{count} run{'' if count == 1 else 's'}"


def say(text: str) -> None:
    typer.echo(text, err=True)

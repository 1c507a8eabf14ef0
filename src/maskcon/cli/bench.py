"""`maskcon bench`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from maskcon._utils.errors import UsageError

if TYPE_CHECKING:
    from maskcon.bench.figures import Figures


def bench(
    rows: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROW,...",
            help="Only these: startup, views_per_core, pack_read, loss_memory, scaling, recall_eval, step_overhead, "
            "step_vs_plain. May be repeated.",
        ),
    ] = None,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Write all figures and the machine's facts here."),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Few turns at small sizes: shows that all works; the figures say little."
        ),
    ] = False,
    whole_million: Annotated[
        bool,
        typer.Option("--whole-million", help="Score a million embeddings to the end, not a stretch of it."),
    ] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the tables as Markdown, with all figures.")
    ] = False,
    show: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Measure nothing: print the table of a file that --json wrote."),
    ] = None,
) -> None:
    """Measure what training and evaluation cost on this machine, as ratios within one run.

    Each row compares the package with what it cannot do without, or with another way to do the same: a training step
    with its bare passes and with plain PyTorch, views with PIL, recall@K with faiss, a pack with JPEG files, two
    processes with one. All rows take some ten minutes on two cores that have nothing else to do; what else runs
    disturbs the ratios less than the times, but it does disturb them. A bound that is missed is shown, and is no error.

    Example: `maskcon bench --rows startup,views_per_core --json bench.json`
    """
    from maskcon.bench import figures as form

    if show is not None:
        if rows or json_file is not None or quick or whole_million:
            raise UsageError("--show only prints an earlier result; give it alone or with --markdown")
        _print(form.read(show), markdown=markdown)
        return
    if json_file is not None and (json_file.is_dir() or not json_file.absolute().parent.is_dir()):
        raise UsageError(f"--json {json_file}: a file in a folder that exists is needed")
    _print(_measure(rows or [], json_file, quick=quick, whole_million=whole_million), markdown=markdown)


def _measure(rows: list[str], json_file: Path | None, *, quick: bool, whole_million: bool) -> Figures:
    from maskcon.bench import figures as form
    from maskcon.bench.measure import Effort
    from maskcon.bench.rows import ROWS, chosen
    from maskcon.training.checkpoint import write_atomically

    effort = Effort(quick=quick, whole_million=whole_million)
    names = chosen(rows)
    machine = form.machine_facts(quick=quick)
    found: Figures = {}
    begun = time.monotonic()
    for number, name in enumerate(names):
        typer.echo(f"{number + 1} of {len(names)}: {name} ...", err=True)
        start = time.monotonic()
        found[name] = ROWS[name](effort)
        told = ", ".join(f"{x.path.partition('.')[2]} {x.value}" for x in form.lines({name: found[name]}))
        typer.echo(f"  {told} ({time.monotonic() - start:.0f} s)", err=True)
        if json_file is not None:  # what is there stays, if a later row is interrupted
            machine["seconds"] = round(time.monotonic() - begun, 1)
            write_atomically(json_file, form.as_json(found, machine))
    return found


def _print(found: Figures, *, markdown: bool) -> None:
    from maskcon.bench import figures as form

    if markdown:
        typer.echo(form.markdown(found))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("figure", "value", "asked", "met", "what it is", box=None, pad_edge=False)
    table.columns[0].no_wrap = True
    table.columns[1].justify = "right"
    for line in form.lines(found):
        table.add_row(line.path, line.value, line.bound, line.met, line.meaning)
    console = Console(highlight=False)
    console.print(table)
    for row, values in found.items():
        if "note" in values:
            console.print(f"{row}: {values['note']}", markup=False)

"""Command line of the benchmarks: `python -m benchmarks.bench --help`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from maskcon._utils.errors import MaskconError, UsageError, unknown
from maskcon._utils.files import write_atomically

from . import figures
from .figures import Figures, Row
from .loss_memory import loss_memory
from .measure import Effort
from .packing import pack_read
from .recall import recall_eval
from .runs import busy_core, scaling, startup
from .steps import step_overhead, step_vs_plain

ROWS: Mapping[str, Callable[[Effort], Row]] = {
    "startup": startup,
    "pack_read": pack_read,
    "busy_core": busy_core,
    "loss_memory": loss_memory,
    "scaling": scaling,
    "recall_eval": recall_eval,
    "step_overhead": step_overhead,
    "step_vs_plain": step_vs_plain,
}
DESCRIPTION = """Measure what training and evaluation cost on this machine, as ratios within one run.

Each row compares the package with what it cannot do without, or with another way to do the same: a training step with
its bare passes and with plain PyTorch, recall@K with faiss, a pack with JPEG files, two processes with one. All rows
take some five minutes on two idle cores; other load changes the ratios less than the times. A missed bound is shown and
is no error.

Example: python -m benchmarks.bench --rows startup,pack_read --json bench.json"""


def chosen(names: Iterable[str]) -> list[str]:
    """Return the rows of these names, each perhaps several with commas between; all of them for none."""
    wanted = [name.strip() for text in names for name in text.split(",") if name.strip()]
    for name in wanted:
        if name not in ROWS:
            raise unknown("row", name, ROWS)
    return [name for name in ROWS if name in wanted or not wanted]


def measure(rows: Sequence[str], json_file: Path | None, effort: Effort) -> Figures:
    """Run the rows, write the JSON file after each of them, and return all figures."""
    machine = figures.machine_facts(quick=effort.quick)
    found: Figures = {}
    begun = time.monotonic()
    for number, name in enumerate(rows):
        print(f"{number + 1} of {len(rows)}: {name} ...", file=sys.stderr, flush=True)
        start = time.monotonic()
        found[name] = ROWS[name](effort)
        values = [f"{x.path.partition('.')[2]} {x.value}" for x in figures.lines({name: found[name]})]
        print(f"  {', '.join(values)} ({time.monotonic() - start:.0f} s)", file=sys.stderr, flush=True)
        if json_file is not None:
            machine["seconds"] = round(time.monotonic() - begun, 1)
            write_atomically(json_file, figures.as_json(found, machine))
    return found


def show(found: Figures, *, markdown: bool) -> None:
    """Print the figures as a table."""
    if markdown:
        print(figures.markdown(found))
        return
    table = Table("figure", "value", "asked", "met", "what it is", box=None, pad_edge=False)
    table.columns[0].no_wrap = True
    table.columns[1].justify = "right"
    for line in figures.lines(found):
        table.add_row(line.path, line.value, line.bound, line.met, line.meaning)
    console = Console(highlight=False)
    console.print(table)
    for row, values in found.items():
        if "note" in values:
            console.print(f"{row}: {values['note']}", markup=False)


def run(arguments: Sequence[str] | None = None) -> None:
    """Parse the arguments and do what they ask for."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.bench",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--rows", action="append", default=[], metavar="ROW,...", help=f"only these of {', '.join(ROWS)}"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures and the machine's facts")
    parser.add_argument("--quick", action="store_true", help="few turns at small sizes: a check, no figures")
    parser.add_argument("--whole-million", action="store_true", help="score all of a million embeddings")
    parser.add_argument("--markdown", action="store_true", help="print Markdown tables with all figures")
    parser.add_argument("--show", type=Path, metavar="FILE", help="print a file that --json wrote")
    options = parser.parse_args(arguments)
    if options.show is not None:
        if options.rows or options.json is not None or options.quick or options.whole_million:
            raise UsageError("--show only prints an earlier result; give it alone or with --markdown")
        show(figures.read(options.show), markdown=options.markdown)
        return
    if options.json is not None and (options.json.is_dir() or not options.json.absolute().parent.is_dir()):
        raise UsageError(f"--json {options.json}: give a file in a folder that exists")
    effort = Effort(quick=options.quick, whole_million=options.whole_million)
    show(measure(chosen(options.rows), options.json, effort), markdown=options.markdown)


def main() -> None:
    try:
        run()
    except MaskconError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()

"""`maskcon tune`."""

from __future__ import annotations

import json
import shlex
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from maskcon._utils.errors import UsageError
from maskcon.cli import options
from maskcon.cli.printing import echo

if TYPE_CHECKING:
    from maskcon.data import Dataset


def tune(
    source: options.Source,
    method: Annotated[str, typer.Option(help="A method with w and tau: maskcon or teachcon.")] = "maskcon",
    rounds: Annotated[
        int,
        typer.Option(
            min=2, help="Number of random groupings of the coarse classes; each takes one trial per setting."
        ),
    ] = 4,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder of the trials; by default runs/SOURCE-METHOD-tune."),
    ] = None,
    settings: options.Settings = None,
    data_root: options.DataRoot = None,
    download: options.Download = False,
    strict: options.Strict = False,
    device: options.Device = "auto",
    threads: Annotated[
        int | None, typer.Option(min=1, help="CPU threads; by default the free cores.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Choose w and tau without fine labels, by short runs on a frozen backbone.

    Merges the coarse classes at random into 2 to 4 groups, trains each setting on the groups, and scores how well the
    embedding separates the coarse classes, now the finer ones; needs three coarse classes. Finished trials are kept:
    rerun the same command to resume, or with more --rounds for more certainty.

    Example: `maskcon tune ./photos --rounds 6`
    """
    from maskcon._utils.files import FolderLock
    from maskcon.api.tune import require_classes
    from maskcon.api.tune import tune as run_trials
    from maskcon.cli.progress import Meter
    from maskcon.cli.terminal import Terminal
    from maskcon.methods.registry import method_named
    from maskcon.training.distributed import threads_of_torch, with_threads
    from maskcon.training.run_folder import make_writable, short_name
    from maskcon.training.trials import open_trials

    recipe = method_named(method)
    if not (recipe.uses_w and recipe.uses_tau):
        raise UsageError(f"{recipe.title} does not have both w and tau; use --method maskcon or teachcon")
    overrides = options.parse_settings(settings)
    folder = out or Path("runs") / f"{short_name(source)}-{recipe.name}-tune"
    machine = options.machine(
        data_root=data_root, device=device, download=download, strict=strict, threads=threads
    )
    terminal = Terminal()

    def check(data: Dataset) -> None:
        require_classes(data)
        make_writable(folder)

    with ExitStack() as stack:
        stack.callback(terminal.on_end)
        machine = with_threads(machine, folder, terminal.on_message)
        stack.enter_context(threads_of_torch(machine.threads))
        config, trials = open_trials(source, recipe.name, overrides, folder, machine, terminal, check)
        stack.enter_context(FolderLock(folder))
        meter = stack.enter_context(Meter("tuning", "trials"))
        tuned = run_trials(config, trials, folder, rounds, meter.show)
    command = ["maskcon", "train", source, "--freeze", "--method", recipe.name]
    command += [part for pair in settings or [] for part in ("--set", pair)]
    command += [] if data_root is None else ["--data-root", data_root]
    command += ["--w", f"{tuned.chosen.w:g}", "--tau", f"{tuned.chosen.tau:g}"]
    if as_json:
        echo(json.dumps({**tuned.as_json(), "command": shlex.join(command), "trials": str(folder)}))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("setting", "mean rank", "score", "spread over rounds", box=None, pad_edge=False)
    rows = zip(tuned.ranking.settings, tuned.ranking.mean_ranks, tuned.ranking.scores, strict=True)
    for setting, rank, scores in rows:
        table.add_row(
            str(setting), f"{rank:.1f}", f"{100 * scores.mean():.2f}", f"{100 * scores.std(ddof=1):.2f}"
        )
    Console(highlight=False).print(table)
    echo(f"chosen: {tuned.chosen}: {tuned.reason}")
    if tuned.is_close:
        echo("The lead is below two standard errors: the runner-up may be as good. --rounds adds trials.")
    echo(shlex.join(command))

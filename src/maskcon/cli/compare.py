"""`maskcon compare`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from maskcon._utils.errors import DataError, UsageError
from maskcon._utils.files import write_atomically
from maskcon.cli import options
from maskcon.cli.printing import echo
from maskcon.cli.progress import Meter, show_runs

if TYPE_CHECKING:
    from maskcon.cli.terminal import Terminal
    from maskcon.config.choices import Facts
    from maskcon.config.settings import Machine, RunConfig
    from maskcon.data.packing import ImagePlan

FACTS = "facts.json"  # facts from which all runs of a comparison choose their settings


def compare(
    source: options.Source,
    methods: Annotated[
        str,
        typer.Option(
            help="Methods to compare, comma-separated; by default all whose labels the data have.",
            metavar="A,B,...",
        ),
    ] = "all",
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each method, with seeds 0, 1, ...")] = 1,
    preset: options.Preset = None,
    epochs: options.Epochs = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of all runs; by default runs/compare-SOURCE.")
    ] = None,
    settings: options.Settings = None,
    jobs: options.Jobs = None,
    data_root: options.DataRoot = None,
    download: options.Download = False,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Train several methods on the same data and compare them in one table.

    Raw pixels are the floor. For your own images, settings are chosen as by `maskcon train`, once for all methods.
    Each run has its own folder; rerun the same command to resume. The report shows table, curves, maps and retrieval.

    Example: `maskcon compare ./photos`, `maskcon compare embedded --methods maskcon,grafit,supce --seeds 3`
    """
    from maskcon.cli.terminal import Terminal
    from maskcon.config.presets import DEFAULT_PRESET
    from maskcon.methods.registry import all_methods, method_named
    from maskcon.training.automatic import facts_bytes, is_known
    from maskcon.training.run_folder import check_place, make_writable, short_name
    from maskcon.training.setup import load_dataset, plan_images, settle

    start = preset or DEFAULT_PRESET
    every = methods == "all"
    given = [m.name for m in all_methods()] if every else [m.strip() for m in methods.split(",")]
    overrides = options.parse_settings(settings)
    if epochs is not None:
        overrides["epochs"] = epochs
    place = options.machine(data_root=data_root, device=device, download=download)
    names = list(dict.fromkeys(method_named(name).name for name in given))
    target = out or Path("runs") / f"compare-{short_name(source)}"
    terminal = Terminal()
    facts: Facts | None = None
    plan: ImagePlan | None = None
    try:
        if preset is None and not is_known(source):
            plan = plan_images(source, place, terminal.on_load)
            facts = _facts(plan or source, overrides, place, target, terminal)
        configs = _configs(source, names, start, overrides, facts, terminal)
        data = load_dataset(source, configs[0], place, terminal, plan)
        names = []
        for config in configs:
            try:
                settle(config, data)
                names.append(config.method)
            except DataError as error:  # no fine labels here, for a method that trains on them
                if not every or method_named(config.method).labels != "fine":
                    raise
                terminal.on_message(f"left out: {error}")
    finally:
        terminal.on_end()  # also if reading was interrupted
    chosen_by: list[str] = []
    if facts is not None:
        check_place(target, source)
        make_writable(target)
        write_atomically(target / FACTS, facts_bytes(facts))
        chosen_by = ["--facts", str(target / FACTS)]
    pairs = [f"{key}={'none' if value is None else value}" for key, value in overrides.items()]
    common = [source, *(a for pair in pairs for a in ("--set", pair))]
    common += [] if preset is None else ["--preset", preset]
    common += [] if data_root is None else ["--data-root", data_root]
    common += ["--download"] if download else []
    place_again = [] if out is None else ["--out", str(out)]
    run_and_report(
        [
            (
                f"{name} seed {seed}",
                target / f"{name}-seed{seed}",
                [*common, *chosen_by, "--device", device, "--method", name, "--seed", str(seed)],
            )
            for seed in range(seeds)
            for name in names
        ],
        target,
        command=["compare", *common, "--methods", ",".join(names), "--seeds", str(seeds), *place_again],
        jobs=jobs,
        machine=place,
        as_json=as_json,
    )


def _facts(
    source: str | ImagePlan,
    overrides: Mapping[str, Any],
    machine: Machine,
    target: Path,
    terminal: Terminal,
) -> Facts:
    """Return the facts from which all runs choose: measured now, or read from an earlier start."""
    from maskcon.training.automatic import find_out, read_facts
    from maskcon.training.run_folder import CONFIG

    file = target / FACTS
    if file.is_file() and any(target.glob(f"*/{CONFIG}")):
        terminal.on_message("resuming with the settings chosen when this comparison was started")
        return read_facts(file)
    return find_out(source, overrides, machine, message=terminal.on_message)


def _configs(
    source: str,
    names: Sequence[str],
    preset: str,
    overrides: Mapping[str, Any],
    facts: Facts | None,
    terminal: Terminal,
) -> list[RunConfig]:
    """Resolve the settings of every method and print the choices once.

    Choices are the same for all methods, except for the learning rate and, in methods without a bank, its size.
    """
    from maskcon.config.resolution import Choosing, resolve
    from maskcon.methods.registry import method_named

    configs: list[RunConfig] = []
    lines: dict[str, str] = {}
    for name in names:
        choosing = None if facts is None else Choosing(lambda: facts, method_named(name).contrasts)
        resolved = resolve(source, method=name, preset=preset, overrides=overrides, choosing=choosing)
        configs.append(resolved.config)
        lines |= {choice.name: choice.line for choice in resolved.choices}
    for line in lines.values():
        terminal.on_choice(line)
    return configs


def run_and_report(
    plans: Sequence[tuple[str, Path, Sequence[str]]],
    target: Path,
    *,
    command: Sequence[str],
    jobs: int | None,
    machine: Machine,
    title: str = "",
    as_json: bool = False,
) -> None:
    """Run each (label, folder, arguments of train), then print the table and write the report."""
    from maskcon.training.comparison import Job, run_jobs

    at_once, threads = options.sharing(jobs, machine.device, len(plans))
    planned = [Job(label, folder, arguments) for label, folder, arguments in plans]
    if target.exists() and not target.is_dir():
        raise UsageError(f"{target} is a file; choose another --out")
    with Meter("training", "runs") as meter:
        run_jobs(planned, at_once=at_once, threads=threads, watch=partial(show_runs, meter))
    from rich.console import Console

    from maskcon.report.summary import write_summary
    from maskcon.report.tables import methods_table
    from maskcon.training.run_folder import read_result

    results: list[Mapping[str, Any]] = [read_result(job.folder) for job in planned]
    echo(json.dumps(results) if as_json else methods_table(results).text())
    with Console(stderr=True).status("writing the report (map, retrieval, curves)"):
        page = write_summary(
            [job.folder for job in planned],
            target,
            machine=machine,
            command=shlex.join(["maskcon", *command]),
            title=title,
        )
    echo(f"\nreport: {page}", err=as_json)

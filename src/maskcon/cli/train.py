"""`maskcon train`."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from maskcon.cli import options
from maskcon.cli.printing import echo
from maskcon.config.presets import DEFAULT_PRESET, default_method

if TYPE_CHECKING:
    from maskcon.config.resolution import Resolved


# Text for a setting without a value.
OPEN = {"image_size": "(the data's)", "query_view": "(the data's)", "key_view": "(the data's)"} | {
    "train_limit": "all",
    "test_limit": "all",
    "epochs": "(measured)",
}


def train(
    source: options.Source,
    method: Annotated[
        str | None,
        typer.Option(
            help="Training method, see `maskcon methods`; by default teachcon (ours), maskcon with any other --preset.",
            show_default=False,
        ),
    ] = None,
    w: Annotated[float | None, typer.Option(help="Weight of the label term, 0 to 1.")] = None,
    tau: Annotated[
        float | None, typer.Option(help="Temperature of the soft relation; 0 and inf are allowed.")
    ] = None,
    preset: options.Preset = None,
    budget: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Choose the epochs to fit into this time, such as 30m, 2h or 90s."),
    ] = None,
    epochs: options.Epochs = None,
    seed: Annotated[int | None, typer.Option(help="Seed of every random choice.")] = None,
    fine: Annotated[
        Path | None,
        typer.Option(
            metavar="CSV",
            help="Edited kinds.csv of `maskcon kinds`: images with the same name are positives of each other, "
            "images with different names never are.",
        ),
    ] = None,
    freeze: Annotated[
        bool,
        typer.Option(
            "--freeze",
            help="Embed every image once with a pretrained backbone and train only a head on it: minutes on a CPU.",
        ),
    ] = False,
    thaw: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Like --freeze, but also train this many last stages of the backbone, on cached maps of the others.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Run folder; by default runs/SOURCE-METHOD-seedSEED.")
    ] = None,
    settings: options.Settings = None,
    data_root: options.DataRoot = None,
    download: options.Download = False,
    strict: options.Strict = False,
    device: options.Device = "auto",
    devices: Annotated[int, typer.Option(help="Processes to train with, one per device.")] = 1,
    threads: Annotated[
        int | None,
        typer.Option(
            help="CPU threads per process; by default the free cores, or in a resumed run the same as before."
        ),
    ] = None,
    checkpoint_every_seconds: Annotated[float, typer.Option(help="Time between checkpoints.")] = 60.0,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write TensorBoard files.")] = False,
    as_json: options.Json = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print every setting and where it comes from; train nothing.")
    ] = False,
    facts: Annotated[Path | None, typer.Option("--facts", hidden=True)] = None,
    stop_with_parent: Annotated[bool, typer.Option("--stop-with-parent", hidden=True)] = False,
) -> None:
    """Train an encoder on coarse labels.

    For your own images, image size, encoder, batch size, bank size and epochs are chosen automatically, each with its
    reason. Values you set are kept. Rerun the same command to resume a stopped run; it keeps its settings.

    The default method is TeachCon, which is ours: MaskCon's relation with neighbours by HOG features, or by
    features of a pretrained backbone, and cross-entropy on the coarse labels. `--method maskcon` is the paper's.

    Example: `maskcon train ./photos --budget 30m`, `maskcon train embedded --epochs 10 --set learning_rate=0.05`
    """
    begun = time.monotonic()  # --budget includes loading torch
    from maskcon.config.choices import parse_budget

    if stop_with_parent:  # before anything that takes time
        from maskcon.training import signals

        signals.stop_with_parent()
    seconds = None if budget is None else parse_budget(budget)
    given = {"w": w, "tau": tau, "epochs": epochs, "seed": seed}
    overrides = options.parse_settings(settings) | {k: v for k, v in given.items() if v is not None}
    if fine is not None:
        overrides["fine"] = str(fine)
    if thaw is not None:
        overrides["thaw"] = thaw
    if freeze or thaw:
        overrides["freeze"] = True
    start = preset or DEFAULT_PRESET
    method = (method or default_method(start)).lower()
    place = options.machine(
        data_root=data_root,
        device=device,
        devices=devices,
        threads=threads,
        checkpoint_every_seconds=checkpoint_every_seconds,
        tensorboard=tensorboard,
        download=download,
        strict=strict,
    )
    from maskcon.training.automatic import complete_settings, read_facts

    choose = preset is None if facts is None else read_facts(facts)  # shared by all runs of a comparison
    if dry_run:
        from maskcon.cli.terminal import Terminal
        from maskcon.training.run_folder import default_folder

        terminal = Terminal()
        try:
            completed = complete_settings(
                source,
                method=method,
                preset=start,
                overrides=overrides,
                folder=out or default_folder(source, method, overrides),
                machine=place,
                choose=choose,
                budget=seconds,
                callback=terminal,
            )
        finally:
            terminal.on_end()
        shown = _shown_settings(completed.resolved, budget)
        if as_json:
            echo(
                json.dumps({key: {"value": value, "from": reason} for key, (value, reason) in shown.items()})
            )
        else:
            _print_settings(shown)
        return
    from maskcon.api import fit
    from maskcon.cli.terminal import Terminal, print_result
    from maskcon.training.callbacks import Callback
    from maskcon.training.distributed import is_first_process

    first = is_first_process()
    run = fit(
        source,
        method=method,
        preset=start,
        choose=choose,
        budget=seconds,
        begun=begun,
        settings=overrides,
        out=out,
        machine=place,
        callback=Terminal() if first else Callback(),
    )
    if first and as_json:
        echo(json.dumps({**run.result, "run": str(run.folder)}))
    elif first:
        print_result(run.result, run.folder)


def _shown_settings(resolved: Resolved, budget: str | None) -> dict[str, tuple[Any, str]]:
    """Return value and reason of every setting."""
    shown = {
        key: (value, resolved.reasons.get(key, "default"))
        for key, value in resolved.config.model_dump().items()
    }
    if budget is not None and not shown["epochs"][1].startswith("chosen"):
        shown["epochs"] = (
            None,
            f"chosen: as many as fit into {budget} on this machine, when training starts",
        )
    return shown


def _print_settings(shown: Mapping[str, tuple[Any, str]]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from maskcon._utils.text import printable
    from maskcon.config.settings import RunConfig

    table = Table("setting", "value", "from", "meaning", box=None, pad_edge=False)
    heading = {keys[0]: group for group, keys in RunConfig.groups().items()}
    for key, (value, reason) in shown.items():
        if key in heading:
            table.add_row(f"[bold]{heading[key]}[/bold]")
        meaning = RunConfig.model_fields[key].description or ""
        table.add_row(key, escape(printable(_text(key, value))), escape(printable(reason)), meaning)
    Console(width=None if Console().is_terminal else 200).print(table)


def _text(key: str, value: Any) -> str:
    if value is None:
        return OPEN.get(key, "none")
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)

"""`maskcon train`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from maskcon.cli import options

if TYPE_CHECKING:
    from maskcon.presets import Resolved


# What a setting without a value means.
OPEN = {"image_size": "(the data's)", "query_view": "(the data's)", "key_view": "(the data's)"} | {
    "train_limit": "all",
    "test_limit": "all",
}


def train(
    source: options.Source,
    method: Annotated[str, typer.Option(help="Training method, see `maskcon methods`.")] = "maskcon",
    w: Annotated[float | None, typer.Option(help="Weight of the label term, 0 to 1.")] = None,
    tau: Annotated[
        float | None, typer.Option(help="Temperature of the soft relation; 0 and inf allowed.")
    ] = None,
    preset: options.Preset = "cpu",
    epochs: options.Epochs = None,
    seed: Annotated[int | None, typer.Option(help="Seed of every random choice.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder; by default runs/SOURCE-METHOD-seedSEED.")
    ] = None,
    settings: options.Settings = None,
    data_root: options.DataRoot = None,
    download: options.Download = False,
    strict: options.Strict = False,
    device: options.Device = "auto",
    devices: Annotated[int, typer.Option(help="Processes to train with, one a device.")] = 1,
    threads: Annotated[int | None, typer.Option(help="CPU threads a process.")] = None,
    checkpoint_every_seconds: Annotated[float, typer.Option(help="Time between checkpoints.")] = 60.0,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write TensorBoard files.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print every setting and where it comes from; train nothing.")
    ] = False,
    stop_with_parent: Annotated[bool, typer.Option("--stop-with-parent", hidden=True)] = False,
) -> None:
    """Train an encoder on coarse labels.

    The same command again goes on where it was stopped, or says that it is finished.

    Example: `maskcon train embedded --method maskcon --epochs 10 --set learning_rate=0.05`
    """
    from maskcon.presets import resolve

    if stop_with_parent:  # before anything that takes time
        from maskcon.engine import signals

        signals.stop_with_parent()
    given = {"w": w, "tau": tau, "epochs": epochs, "seed": seed}
    overrides = options.parse_settings(settings) | {k: v for k, v in given.items() if v is not None}
    chosen = method.lower()
    resolved = resolve(source, method=chosen, preset=preset, overrides=overrides)
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
    if dry_run:
        _print_settings(resolved)
        return
    from maskcon.cli.terminal import Terminal, print_result
    from maskcon.engine.distributed import is_first_process
    from maskcon.observer import Announcer
    from maskcon.run import fit

    speaks = not quiet and is_first_process()
    run = fit(
        source,
        method=chosen,
        preset=preset,
        settings=overrides,
        out=out,
        machine=place,
        announce=Terminal() if speaks else Announcer(),
    )
    if speaks:
        print_result(run.result, run.folder)


def _print_settings(resolved: Resolved) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from maskcon.config import RunConfig
    from maskcon.methods import method_named

    method_named(resolved.config.method)
    table = Table("setting", "value", "from", "meaning", box=None, pad_edge=False)
    for key, value in resolved.config.model_dump().items():
        meaning = RunConfig.model_fields[key].description or ""
        shown = OPEN.get(key, "none") if value is None else str(value)
        table.add_row(key, escape(shown), resolved.reasons.get(key, "default"), meaning)
    Console(width=None if Console().is_terminal else 200).print(table)

"""`maskcon demo`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from maskcon.cli import options
from maskcon.cli.printing import echo

DEMO_METHODS = ("teachcon", "maskcon", "selfcon", "supce")
DEMO_FOLDER = Path("runs/demo")


def demo(
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for the runs and the report.")
    ] = DEMO_FOLDER,
    epochs: Annotated[int | None, typer.Option(help="Training epochs; fewer for a quicker look.")] = None,
    jobs: options.Jobs = None,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Train four methods on the embedded images and write a page that compares them.

    TeachCon is ours; MaskCon, SelfCon and SupCE are from the paper. All have the same optimiser, schedule and epochs.

    Takes some minutes on two cores and downloads nothing. Open the page that it prints in a browser.
    """
    from maskcon.cli.compare import run_and_report
    from maskcon.config.presets import DEFAULT_PRESET
    from maskcon.config.resolution import resolve

    overrides = {} if epochs is None else {"epochs": epochs}
    # refuse wrong values before anything starts
    resolve("embedded", method=DEMO_METHODS[0], preset=DEFAULT_PRESET, overrides=overrides)
    more = [] if epochs is None else ["--epochs", str(epochs)]
    place = [] if out == DEMO_FOLDER else ["--out", str(out)]
    echo(
        "Fashion items, labelled only upper body / full length / footwear / bag, are separated by kind "
        "(shirt, coat, dress, ...).\nNo fine label is used in training.\n",
        err=as_json,
    )
    run_and_report(
        [
            (name, out / name, ["embedded", "--method", name, "--device", device, *more])
            for name in DEMO_METHODS
        ],
        out,
        command=["demo", *more, *place],
        jobs=jobs,
        machine=options.machine(device=device),
        title="What coarse labels can teach: the embedded images",
        as_json=as_json,
    )
    first = shlex.quote(str(out / DEMO_METHODS[0]))
    echo(
        f"\nSee and name the finer kinds, search by image (pip install 'maskcon[app]'):\n"
        f"  maskcon explore {first}",
        err=as_json,
    )

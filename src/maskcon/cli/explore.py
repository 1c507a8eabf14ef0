"""`maskcon explore`."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from maskcon._utils.errors import UsageError
from maskcon.cli import options
from maskcon.cli.printing import echo

NEEDED = ("fastapi", "uvicorn")


def explore(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="Folder of a finished run, or an embeddings file (.parquet)."),
    ],
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="SOURCE",
            help="Images, as for `maskcon kinds`; by default those of the kinds, or else the run's.",
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; by default only this machine.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 chooses a free one.")] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of the kinds; by default RUN/kinds.")
    ] = None,
    outside: Annotated[
        bool,
        typer.Option("--outside", help="Also show images outside of the source's folder, reached by links."),
    ] = False,
    data_root: options.DataRoot = None,
    download: options.Download = False,
    device: options.Device = "auto",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the address and errors.")] = False,
) -> None:
    """See, name and correct the finer kinds in a browser, and search by image.

    Every edit is saved at once. If there are no kinds yet, it finds them first, as `maskcon kinds` does. Ctrl-C stops
    it.

    Example: `maskcon explore runs/photos-teachcon-seed0`
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"`maskcon explore` needs {' and '.join(missing)}; install with: pip install 'maskcon[app]'"
        )
    from maskcon.app.server import serve
    from maskcon.app.startup import open_workspace
    from maskcon.cli.progress import Meter

    with (
        Meter("reading", "images") as reading,
        Meter("embedding", "images") as embedding,
        Meter("finding kinds", "classes") as clustering,
    ):
        workspace = open_workspace(
            run,
            source,
            out,
            machine=options.machine(data_root=data_root, download=download, device=device),
            outside=outside,
            reading=reading.show,
            embedding=embedding.show,
            clustering=clustering.show,
        )

    def ready(address: str, *others: str) -> None:
        import webbrowser

        echo("\n".join([f"explorer: {address}", *(f"for other machines: {other}" for other in others)]))
        if not quiet:
            echo("Ctrl-C stops it; every edit is saved at once.")
        if not no_browser:
            webbrowser.open(address)

    serve(workspace, host=host, port=port, ready=ready)
    if workspace.problem:
        echo(workspace.problem, err=True)
    if not quiet:
        echo(f"kinds: {workspace.csv}")

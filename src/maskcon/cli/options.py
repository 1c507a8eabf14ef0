"""Options that several commands share."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from maskcon._utils.errors import UsageError

if TYPE_CHECKING:
    from maskcon.config.settings import Machine

Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A folder with one sub-folder per coarse label, a manifest (.csv or .parquet with the columns "
        "path,coarse[,fine][,split]), a dataset by name (see `maskcon datasets`), or hf:NAME[,coarse=COLUMN].",
    ),
]
IMAGES = typer.Argument(
    metavar="SOURCE",
    help="A folder of images (class folders are not needed), a manifest (.csv, .parquet) with a column path, a dataset "
    "by name or hf:NAME, or images.",
)
Store = Annotated[
    str | None,
    typer.Option(
        metavar="postgresql://...",
        help="Keep the index in PostgreSQL with pgvector instead of a folder. Prefer PGPASSWORD for a password.",
    ),
]
INDEX_FOLDER = "index"  # in the run's folder
Preset = Annotated[
    str | None,
    typer.Option(
        help="Where settings start: fast (a laptop, ours), cpu (a laptop, the paper's optimiser), paper, or reference "
        "(the published code). By default fast, and for your own images other settings are chosen to fit them and this "
        "machine."
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change any setting; may be repeated. `maskcon train SOURCE --dry-run` lists them.",
    ),
]
DataRoot = Annotated[str | None, typer.Option(help="Folder that holds the datasets (also MASKCON_DATA).")]
Download = Annotated[bool, typer.Option("--download", help="Download missing data or weights.")]
Strict = Annotated[
    bool, typer.Option("--strict", help="Stop at an unreadable image instead of leaving it out.")
]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON to stdout instead of text.")]
Jobs = Annotated[
    int | None, typer.Option(min=1, help="Runs at once; by default one per core on a CPU, else 1.")
]
Epochs = Annotated[
    int | None, typer.Option(help="Passes over the training images; by default those of the preset.")
]


def with_quiet(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the option --quiet: no output but errors, and with --json the JSON object.

    A command with its own parameter `quiet` decides what goes to stdout.
    """
    own = inspect.signature(command, eval_str=True)
    decides = "quiet" in own.parameters

    @functools.wraps(command)
    def run(*, quiet: bool = False, **values: Any) -> None:
        with contextlib.ExitStack() as stack:
            if quiet:
                nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123
                stack.enter_context(contextlib.redirect_stderr(nowhere))
                if not (decides or values.get("as_json")):
                    stack.enter_context(contextlib.redirect_stdout(nowhere))
            command(**values, **({"quiet": quiet} if decides else {}))

    text = "Print only errors" + (
        ", and with --json the JSON object." if "as_json" in own.parameters else "."
    )
    kind = Annotated[bool, typer.Option("--quiet", "-q", help=text)]
    option = inspect.Parameter("quiet", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=kind)
    parameters = {**own.parameters, "quiet": own.parameters.get("quiet", option)}
    run.__signature__ = own.replace(parameters=list(parameters.values()))  # type: ignore[attr-defined]
    run.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
    return run


def index_name(run: Path) -> str:
    """Return the default name of a run's index in a database: the name of its folder."""
    return run.resolve().name


def parse_settings(pairs: list[str] | None) -> dict[str, Any]:
    """Return `--set` pairs as a dictionary."""
    from maskcon.config.settings import parse_override

    return dict(parse_override(pair) for pair in pairs or [])


def machine(**values: Any) -> Machine:
    """Build a `Machine` from options; errors name the option."""
    from pydantic import ValidationError

    from maskcon.config.settings import Machine

    try:
        return Machine(**values)
    except ValidationError as error:
        problem = error.errors()[0]
        name = str(problem["loc"][0]).replace("_", "-")
        raise UsageError(f"--{name} {problem['input']!r}: {problem['msg'].lower()}") from None


def sharing(jobs: int | None, device: str, runs: int) -> tuple[int, int]:
    """Return runs at once and threads per run: small networks train fastest on one core each."""
    from maskcon.training.distributed import usable_device

    cores = os.cpu_count() or 1
    at_once = max(1, min(runs, jobs or (cores if usable_device(device) == "cpu" else 1)))
    return at_once, max(1, cores // at_once)

"""Options that several commands share, and what they mean together."""

from __future__ import annotations

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
        "path,coarse[,fine][,split]), a data set by name (see `maskcon datasets`), or hf:NAME[,coarse=COLUMN].",
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(
        help="Where settings start: fast (a laptop, MaskCon with more of ours), cpu (a laptop, the paper's methods), "
        "paper, or reference (the published code). By default fast to train one method and cpu to compare several; "
        "for pictures of your own, the rest is then chosen to fit them and this machine."
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
DataRoot = Annotated[str | None, typer.Option(help="Folder that holds the data sets (also MASKCON_DATA).")]
Download = Annotated[bool, typer.Option("--download", help="Fetch data or weights that are missing here.")]
Strict = Annotated[
    bool, typer.Option("--strict", help="Stop at an unreadable image instead of leaving it out.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON to stdout instead of text.")]
Jobs = Annotated[
    int | None, typer.Option(min=1, help="Runs at once; by default one per core on a CPU, else 1.")
]
Epochs = Annotated[
    int | None, typer.Option(help="Passes over the training images; the preset's if not given.")
]


def parse_settings(pairs: list[str] | None) -> dict[str, Any]:
    """`--set` pairs as a dictionary."""
    from maskcon.config.settings import parse_override

    return dict(parse_override(pair) for pair in pairs or [])


def machine(**values: Any) -> Machine:
    """A `Machine` from options, with its errors in one line."""
    from pydantic import ValidationError

    from maskcon.config.settings import Machine

    try:
        return Machine(**values)
    except ValidationError as error:
        problem = error.errors()[0]
        name = str(problem["loc"][0]).replace("_", "-")
        raise UsageError(f"--{name} {problem['input']!r}: {problem['msg'].lower()}") from None

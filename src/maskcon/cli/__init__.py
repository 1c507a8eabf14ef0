"""The command line. Each command has its file; this one registers them and turns errors into one line.

Commands import what they need when they run, so that `maskcon --help` is fast.
"""

from __future__ import annotations

import contextlib
import io
import sys
from itertools import pairwise
from typing import NoReturn

import typer

from maskcon._utils.errors import FAILURES, MaskconError
from maskcon._utils.threads import spin_briefly
from maskcon.cli import options
from maskcon.cli.ask import ask
from maskcon.cli.compare import compare
from maskcon.cli.datasets import datasets
from maskcon.cli.demo import demo
from maskcon.cli.diagnose import diagnose
from maskcon.cli.embed import embed
from maskcon.cli.evaluate import evaluate
from maskcon.cli.explore import explore
from maskcon.cli.export import export
from maskcon.cli.index import index
from maskcon.cli.inspect import inspect
from maskcon.cli.kinds import kinds
from maskcon.cli.methods import methods
from maskcon.cli.printing import echo
from maskcon.cli.report import report
from maskcon.cli.reproduce import reproduce
from maskcon.cli.search import search
from maskcon.cli.train import train
from maskcon.cli.tune import tune
from maskcon.cli.verify import verify

INTERRUPTED = 130  # typer's exit code for Ctrl-C, as in shells

app = typer.Typer(
    name="maskcon",
    help="Learn fine-grained image embeddings from coarse labels.",
    epilog="First steps: `maskcon demo`, then `maskcon train FOLDER` with one sub-folder per coarse label. "
    "Any command with --debug shows the traceback of an error.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
COMMANDS = (
    *(inspect, train, tune, evaluate, compare, report, diagnose, kinds, ask, explore),
    *(embed, export, index, search, verify, methods, demo, reproduce, datasets),
)
for command in COMMANDS:
    app.command()(options.with_quiet(command))


@app.callback(invoke_without_command=True)
def root(
    version: bool = typer.Option(False, "--version", help="Print the version and exit."),
) -> None:
    if version:
        from maskcon import __version__

        echo(f"maskcon {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line; every failure is one line on stderr and an exit code."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    debug = len(arguments) < len(sys.argv) - 1
    spin_briefly()  # before a command imports torch; child processes inherit it
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # some file names cannot be encoded
    try:
        code = app(args=arguments or ["--help"], prog_name="maskcon", standalone_mode=False)
    except Exception as error:
        if debug:
            raise
        fail(*explained(error, arguments))
    if code == INTERRUPTED:
        fail("interrupted", code)
    sys.exit(code)


def explained(error: Exception, arguments: list[str]) -> tuple[str, int]:
    """Return the line for the user about an error, and the exit code."""
    if isinstance(error, MaskconError):
        return str(error), error.exit_code
    if hasattr(error, "format_message"):  # an option or command that typer does not know, or cannot read
        text = error.format_message().rstrip(".")
        names = getattr(getattr(error, "param", None), "opts", [])
        words = [word for argument in arguments for word in argument.split("=", 1)]  # --epochs=3
        given = [value for name, value in pairwise(words) if name in names]
        help_of = getattr(getattr(error, "ctx", None), "command_path", "maskcon")
        return f"{text}, got {given[-1]!r}" if given else f"{text} (see `{help_of} --help`)", 2
    if isinstance(error, OSError) and error.errno in FAILURES:
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror}; rerun the same command when that is resolved", 1
    name = type(error).__name__
    return f"unexpected {name}: {error}; this is a defect, `--debug` shows where", 1


def fail(message: str, code: int) -> NoReturn:
    """Print one line and exit."""
    with contextlib.suppress(OSError):  # the terminal may be gone
        echo(f"maskcon: {' '.join(line.strip() for line in message.splitlines())}", err=True)
    sys.exit(code)

"""The command line. Each command is a file; this one only registers them and turns errors into one line.

Commands import what they need when they run, so that `maskcon --help` answers at once.
"""

from __future__ import annotations

import sys

import typer

from maskcon.cli.compare import compare
from maskcon.cli.datasets import datasets
from maskcon.cli.demo import demo
from maskcon.cli.evaluate import evaluate
from maskcon.cli.methods import methods
from maskcon.cli.report import report
from maskcon.cli.train import train
from maskcon.errors import MaskconError

app = typer.Typer(
    name="maskcon",
    help="Learn fine-grained image embeddings from coarse labels.",
    epilog="First steps: `maskcon demo`, then `maskcon train FOLDER` with one sub-folder per coarse label. "
    "Any command with --debug shows the traceback of an error.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (train, evaluate, compare, report, methods, datasets, demo):
    app.command()(command)


@app.callback(invoke_without_command=True)
def options(
    version: bool = typer.Option(False, "--version", help="Print the version and exit."),
) -> None:
    if version:
        from maskcon import __version__

        typer.echo(f"maskcon {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line; every foreseen failure is one line on stderr and an exit code."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    debug = len(arguments) < len(sys.argv) - 1
    try:
        app(args=arguments, prog_name="maskcon")
    except MaskconError as error:
        if debug:
            raise
        fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        fail("interrupted", 130)
    except BrokenPipeError:
        sys.exit(141)  # the reader (`| head`) has gone
    except Exception as error:
        if debug:
            raise
        name = type(error).__name__
        fail(f"unexpected {name}: {error}; this is a defect, `--debug` shows where", 1)


def fail(message: str, code: int) -> None:
    """One line, then out."""
    typer.echo(f"maskcon: {message}", err=True)
    sys.exit(code)

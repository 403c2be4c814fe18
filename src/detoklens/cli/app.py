"""The command line: one command, one artefact. Each command lives in a file of its own name."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated

import typer

from detoklens.errors import DetokLensError
from detoklens.version import __version__

LONGEST_SHOWN = 200  # characters of a path in a message
COMMANDS = (
    "verify",
    "partners",
    "words",
    "heatmap",
    "auroc",
    "lexicon",
    "frequency",
    "heads",
    "positions",
    "shape",
    "variance",
    "attention",
    "contributions",
    "explain",
    "count",
    "counts",
    "report",
    "compare",
)

app = typer.Typer(
    name="detoklens",
    help="What does a language model's first attention layer do, and why? Read it off the weights.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"detoklens {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """What does a language model's first attention layer do, and why? Read it off the weights."""


def _register() -> None:
    for name in COMMANDS:
        if find_spec(f"detoklens.cli.{name}") is None:
            continue
        command = getattr(import_module(f"detoklens.cli.{name}"), name)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)


_register()


def main() -> None:
    """Run the command line; what the user can mend is one line and exit code 1."""
    try:
        app()
    except DetokLensError as error:
        sys.stderr.write(f"detoklens: {error}\n")
        sys.exit(1)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        if error.filename is None:
            raise
        sys.stderr.write(f"detoklens: {_shown(error.filename)}: {error.strerror}; name another file or folder\n")
        sys.exit(1)


def _shown(path: object) -> str:
    """A path in a message, shortened where it is a screen long."""
    text = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else str(path)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"

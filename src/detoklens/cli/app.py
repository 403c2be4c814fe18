"""The command line. Each question is a command, built from the question class when it is called."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_from_info
from typer.models import CommandInfo

from detoklens.__main__ import INTERRUPTED
from detoklens.cli.errors import forget_unwritten, one_line, open_streams
from detoklens.errors import DetokLensError
from detoklens.questions.catalogue import QUESTIONS
from detoklens.version import __version__

OTHER_COMMANDS = {
    "Reports": {
        "report": "Write a full report of a model: page, figures, tables, provenance.",
        "compare": "Compare several checkpoints in one report.",
        "explore": "Explore a model's first layer in the browser.",
    },
    "Corpus counts": {
        "count": "Count the tokens and bigrams of a corpus of any size.",
        "counts": "Inspect and import corpus counts.",
    },
    "Checks": {"verify": "Compare the decomposition with transformers' own first layer."},
    "Other programs": {"schema": "Print the JSON schema of a question's parameters, tables and JSON output."},
}
CONTEXT = {"help_option_names": ["-h", "--help"]}


class Command(TyperCommand):
    """A command whose help lists its advanced options last, under their own heading."""

    def format_options(self, context: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(context):
            record = parameter.get_help_record(context)
            kind = "Arguments" if parameter.param_type_name == "argument" else "Options"
            heading = getattr(parameter, "rich_help_panel", None) or kind
            if record is not None:
                sections.setdefault(heading, []).append(record)
        for heading, records in sections.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


class Commands(TyperGroup):
    """Commands that are built when called: help and completion need names and summaries only."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        names: dict[str, Any] = dict.fromkeys(self.list_commands(None))
        self.commands = names  # typer suggests from these

    def list_commands(self, _context: Any) -> list[str]:
        return [name for names in topics().values() for name in names]

    def get_command(self, _context: Any, name: str) -> Any:
        if name not in self.list_commands(_context):
            return None
        function = callback(name)
        if isinstance(function, typer.Typer):
            return typer.main.get_group(function)
        info = CommandInfo(name, cls=Command, callback=function, context_settings=CONTEXT)
        return get_command_from_info(info, pretty_exceptions_short=False, rich_markup_mode=None)

    def format_commands(self, _context: Any, formatter: Any) -> None:
        """Whole summaries, grouped by topic."""
        for topic, names in topics().items():
            formatter.write(f"\n{topic}\n")
            with formatter.indentation():
                formatter.write_dl([(name, summary(name)) for name in names])


def topics() -> dict[str, list[str]]:
    """The commands by topic."""
    found: dict[str, list[str]] = {}
    for name in QUESTIONS:
        if name in others():
            continue
        found.setdefault(QUESTIONS.topic(name), []).append(name)
    return found | {topic: list(names) for topic, names in OTHER_COMMANDS.items()}


def callback(name: str) -> Callable[..., None] | typer.Typer:
    """The function that a command calls; imports only what that command needs."""
    if name not in others():
        from detoklens.cli.adapter import question_command

        return question_command(QUESTIONS[name])
    found: Callable[..., None] | typer.Typer = import_module(f"detoklens.cli.{name}").command
    return found


def summary(name: str) -> str:
    """The one-line summary of a command."""
    return others()[name] if name in others() else QUESTIONS.summary(name)


def others() -> dict[str, str]:
    """The commands that are not questions, with their summaries; a question can't take their names."""
    return {name: text for summaries in OTHER_COMMANDS.values() for name, text in summaries.items()}


app = typer.Typer(
    name="detoklens",
    cls=Commands,
    help="What does a language model's first attention layer do, and why? Read it off the weights.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=CONTEXT,
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


def main() -> None:
    """Run the command line; an error that the user can fix is one line and exit code 1."""
    # What overflows is refused in one line; numpy's warnings would only come before it.
    warnings.filterwarnings("ignore", r".* encountered in ", RuntimeWarning, append=True)
    try:
        open_streams()
        run_command()
    except (DetokLensError, OSError, MemoryError) as error:
        line = one_line(error)
        if line is None:
            raise
        sys.stderr.write(line)
        forget_unwritten()
        sys.exit(1)


def run_command() -> None:
    """Run the command and flush stdout here, so that a failed write is reported before the interpreter exits."""
    try:
        app(prog_name="detoklens")
    except SystemExit as ended:
        if ended.code == INTERRUPTED:  # typer turns Ctrl-C into a silent exit
            raise KeyboardInterrupt from None
        sys.stdout.flush()
        raise

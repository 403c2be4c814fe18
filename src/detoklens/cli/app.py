"""The command line. Each question is a command, built from the question class when it is called.

An error that the user can fix is one line on stderr, in any state of the streams.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
import warnings
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_from_info, get_group
from typer.models import CommandInfo

from detoklens.__main__ import INTERRUPTED
from detoklens.errors import INPUTS, DetokLensError, MissingError, OutputError, first_line
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
    "Scripting": {"schema": "Print the JSON schema of a question's parameters, tables and JSON output."},
}
RESERVED = {name for summaries in OTHER_COMMANDS.values() for name in summaries}
CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def topics() -> dict[str, dict[str, str]]:
    """The commands' names and summaries by topic; a question can't take the name of another command."""
    found: dict[str, dict[str, str]] = {}
    for name, listing in QUESTIONS.listings.items():
        if name not in RESERVED:
            found.setdefault(listing.topic, {})[name] = listing.summary
    return found | OTHER_COMMANDS


class Command(TyperCommand):
    """A command whose help lists its advanced options last, under their own heading."""

    def parse_args(self, context: Any, words: list[str]) -> list[str]:
        try:
            return super().parse_args(context, words)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")
            raise

    def collect_usage_pieces(self, context: Any) -> list[str]:
        return ["[OPTIONS]", *(_in_usage(each) for each in self.get_params(context) if _is_argument(each))]

    def format_options(self, context: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(context):
            record = parameter.get_help_record(context)
            heading = getattr(parameter, "rich_help_panel", None) or "Options"
            if record is not None and _is_argument(parameter):
                sections["Arguments"].append(
                    (parameter.metavar or "", record[1])
                )  # the type would only repeat the help
            elif record is not None:
                sections.setdefault(heading, []).append(record)
        for heading, records in sections.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


def _is_argument(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "argument")


def _in_usage(argument: Any) -> str:
    """An argument in the usage line: INPUT, [MODEL] or [TOKEN]..."""
    name = argument.metavar if argument.required else f"[{argument.metavar}]"
    return name if argument.nargs == 1 else f"{name}..."


class Commands(TyperGroup):
    """Commands that are built when called: help and completion need names and summaries only."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        names: dict[str, Any] = {name: None for names in topics().values() for name in names}
        self.commands = names  # typer lists these and suggests from them

    def get_command(self, _context: Any, name: str) -> Any:
        """Build a command; imports only what it needs."""
        if name in RESERVED:
            function = import_module(f"detoklens.cli.{name}").command
            if isinstance(function, typer.Typer):
                return get_group(function)
        elif name in QUESTIONS:
            from detoklens.cli.adapter import question_command

            function = question_command(QUESTIONS[name])
        else:
            return None
        info = CommandInfo(name, cls=Command, callback=function, context_settings=CONTEXT)
        return get_command_from_info(info, pretty_exceptions_short=False, rich_markup_mode=None)

    def format_commands(self, _context: Any, formatter: Any) -> None:
        """Whole summaries, grouped by topic."""
        for topic, summaries in topics().items():
            formatter.write(f"\n{topic}\n")
            with formatter.indentation():
                formatter.write_dl(list(summaries.items()))


app = typer.Typer(
    name="detoklens",
    cls=Commands,
    help="Analyse a language model's first attention layer: which heads merge subword tokens into words, and why.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=CONTEXT,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"detoklens {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Analyse a language model's first attention layer: which heads merge subword tokens into words, and why."""


def main() -> None:
    """Run the command line; an error that the user can fix is one line and exit code 1."""
    # What overflows is refused in one line; numpy's warnings would only come before it.
    warnings.filterwarnings("ignore", r".* encountered in ", RuntimeWarning, append=True)
    try:
        open_streams()
        try:
            app(prog_name="detoklens")
        except SystemExit as ended:
            if ended.code == INTERRUPTED:  # typer turns Ctrl-C into a silent exit
                raise KeyboardInterrupt from None
            sys.stdout.flush()  # a failed write is reported before the interpreter exits
            raise
    except (DetokLensError, OSError, MemoryError) as error:
        line = error_line(error)
        if line is None:
            raise
        sys.stderr.write(line)
        discard_unwritten()
        sys.exit(1)


def open_streams() -> None:
    """Refuse a closed stdout, replace a closed stderr, and let stdout print every character."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        raise OutputError("stdout is closed; redirect it, e.g. > /dev/null")
    if isinstance(sys.stdout, io.TextIOWrapper):
        codecs.register_error("detoklens", _escape)
        sys.stdout.reconfigure(errors="detoklens")


def _escape(error: UnicodeError) -> tuple[str | bytes, int]:
    """The bytes of a path that is not UTF-8; a backslash escape for a character that stdout's encoding lacks."""
    try:
        return codecs.lookup_error("surrogateescape")(error)
    except UnicodeError:
        return codecs.lookup_error("backslashreplace")(error)


def discard_unwritten() -> None:
    """Discard unwritten output, so that the interpreter does not fail on it again at exit."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


LONGEST_PATH = 200  # characters of a path in a message
UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EBADF})
"""Errors of writing to stdout, which come without a file name: full, too large, broken, read-only."""
LESS = "lower --heads, --tokens, --documents, --top, --workers, --batch or --memory, whichever the command has"
AS_FLAGS = {
    "with skip_bad=True": "with --skip-bad",
    "set document_per_line=True": "add --document-per-line",
    "pass text_field=": "pass --text-field ",
    "as ids_field": "as --ids-field",
    "pass dtype=": "pass --dtype ",
    "omit dtype": "omit --dtype",
    "its tokenizer: load(model, tokenizer=…)": "put its tokenizer.json next to the weights",
}
"""Python parameters in messages, and the command-line options in place of them."""


def error_line(error: Exception) -> str | None:
    """The message of an error that the user can fix; empty for a closed pipe, None for a bug."""
    if isinstance(error, MissingError) and error.need in INPUTS and INPUTS[error.need].option:
        return f"detoklens: {error.what}; {INPUTS[error.need].option}\n"
    if isinstance(error, DetokLensError):
        message = str(error)
        for keyword, flag in AS_FLAGS.items():
            message = message.replace(keyword, flag)
        return f"detoklens: {message}\n"
    if isinstance(error, MemoryError):
        return f"detoklens: not enough memory ({first_line(error)}); {LESS}\n"
    if isinstance(error, BrokenPipeError):
        return ""
    if isinstance(error, OSError) and error.filename is not None:
        name = error.filename
        path = os.fsdecode(name) if isinstance(name, str | bytes | os.PathLike) else str(name)
        path = path if len(path) <= LONGEST_PATH else f"{path[:LONGEST_PATH]}…"
        return f"detoklens: {path}: {error.strerror}; choose another file or folder\n"
    if isinstance(error, OSError) and error.errno in UNWRITABLE:
        return f"detoklens: the output can't be written: {error.strerror}; redirect it elsewhere\n"
    return None

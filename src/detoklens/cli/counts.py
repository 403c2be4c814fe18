"""`detoklens counts`: inspect corpus counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from detoklens.cli.adapter import command_of
from detoklens.cli.output import Printed, print_table
from detoklens.errors import TokenError
from detoklens.questions.parameters import REQUIRED, Parameter
from detoklens.tables.corpus import COUNT_TOTALS, PREDECESSORS

if TYPE_CHECKING:
    from detoklens.corpus.counts import Counts


@dataclass(frozen=True)
class Shown:
    """Which counts and which token to show."""

    folder: Annotated[
        str, Parameter("A folder written by `detoklens count`, or demo.", metavar="COUNTS", positional=True)
    ] = REQUIRED
    token: Annotated[
        str | None,
        Parameter('A token as text, spaces included: " the".', metavar="[TOKEN]", positional=True),
    ] = None
    token_id: Annotated[int | None, Parameter("The token as an id.", least=0)] = None
    top: Annotated[int, Parameter("Number of predecessors.", least=1)] = 10


def show(shown: Shown, printed: Printed) -> None:
    """Show the totals, or the most frequent predecessors of a token.

    Example: detoklens counts show demo ion --top 5
    """
    from detoklens.corpus.counts import Counts

    opened = Counts.open(shown.folder)
    if shown.token is None and shown.token_id is None:
        title = f"{shown.folder}: {COUNT_TOTALS.question}"
        print_table(COUNT_TOTALS.frame(opened.totals()), printed.output_format, title)
        return
    suffix = _token_id(opened, shown.token, shown.token_id)
    title = f"{opened.texts[suffix]!r} ({suffix}) occurs {opened.tokens[suffix]:,} times, after"
    found = PREDECESSORS.frame(opened.most_frequent_predecessors(suffix, shown.top))
    print_table(found, printed.output_format, title)


def _token_id(opened: Counts, token: str | None, token_id: int | None) -> int:
    if token is not None and token_id is not None:
        raise TokenError("a token was given both as text and as --token-id; pass one of them")
    if token_id is not None:
        opened.check_token(token_id)
        return token_id
    return opened.token_id(token or "")


command = typer.Typer(help="Inspect corpus counts.", no_args_is_help=True, rich_markup_mode=None)


@command.callback()
def _about() -> None:
    """Inspect corpus counts."""


command.command("show")(command_of(show, [Shown, Printed]))

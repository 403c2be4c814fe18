"""`detoklens counts`: what do the counts of a corpus say?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from detoklens.cli import options
from detoklens.cli.output import emit

if TYPE_CHECKING:
    from detoklens.corpus.counts import Counts

counts = typer.Typer(help="Look at the counts of a corpus.", no_args_is_help=True, rich_markup_mode=None)


@counts.callback()
def _about() -> None:
    """Look at the counts of a corpus."""


@counts.command()
def show(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="COUNTS", help="A folder made by `detoklens count`, or demo.", callback=options.counts_named
        ),
    ],
    token: Annotated[
        str | None,
        typer.Argument(metavar="[TOKEN]", help='A token as text, spaces included: " sapiens".', show_default=False),
    ] = None,
    token_id: Annotated[
        int | None, typer.Option("--token-id", min=0, help="The token by its id.", show_default=False)
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="How many predecessors.")] = 10,
    output_format: options.FormatOption = options.Format.table,
) -> None:
    """Show the totals, or the most frequent predecessors of a token.

    Example: detoklens counts show counts " sapiens" --top 5
    """
    from detoklens.corpus.counts import Counts
    from detoklens.tables.corpus import COUNT_TOTALS, PREDECESSORS

    opened = Counts.open(folder)
    if token is None and token_id is None:
        emit(COUNT_TOTALS.frame(opened.totals()), output_format, title=f"{folder}: {COUNT_TOTALS.question}")
        return
    suffix = _token_id(opened, token, token_id)
    title = f"{opened.texts[suffix]!r} ({suffix}) occurs {opened.tokens[suffix]:,} times, after"
    emit(PREDECESSORS.frame(opened.most_frequent_predecessors(suffix, top)), output_format, title=title)


def _token_id(opened: Counts, token: str | None, token_id: int | None) -> int:
    from detoklens.errors import TokenError

    if token is not None and token_id is not None:
        raise TokenError("a token was given both as text and by --token-id; give one of them")
    if token_id is not None:
        opened.check_token(token_id)
        return token_id
    return opened.token_id(token or "")

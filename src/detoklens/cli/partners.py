"""`detoklens partners`: which key tokens does a query token look for?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from detoklens.cli import asking, options
from detoklens.cli.answering import provenance_of, show_answer, write_answer
from detoklens.demo import NAME as DEMO

if TYPE_CHECKING:
    from detoklens.scores.layer import Layer


def partners(
    model: options.Model = DEMO,
    token: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOKEN]...", help='Query tokens as text, spaces included: " Korea".'),
    ] = None,
    token_id: Annotated[
        list[int] | None, typer.Option("--token-id", help="A query token by its id; may be repeated.")
    ] = None,
    heads: options.Heads = None,
    top: Annotated[int, typer.Option("--top", min=1, help="How many key tokens per head.")] = 10,
    counts: options.CountsFolder = None,
    centred: options.Centred = False,
    scale: asking.Scale = "mean",
    output_format: options.FormatOption = options.Format.table,
    out: options.Out = None,
    revision: options.Revision = None,
) -> None:
    """Show the key tokens with the largest T^ee for a query token, in every head.

    A token is looked up exactly as written: " Korea" with its space and "Korea" are two tokens.

    Example: detoklens partners gpt2 " Korea" --heads 7 --top 5
    """
    from detoklens.analyses.partners import partners as find_partners
    from detoklens.tables.partners import PARTNERS

    layer = asking.open_layer(model, revision)
    corpus = asking.open_counts(counts, layer)
    queries = _query_ids(layer, token or [], token_id or [])
    ranking = asking.chosen_ranking(layer, heads, scale, centred)
    with asking.working("ranking keys"):
        frame = find_partners(layer, queries, top=top, **ranking, counts=corpus)
    schema = PARTNERS if corpus else PARTNERS.without("count")
    asked = {"token_ids": queries, "top": top, **ranking}
    write_answer(layer, [(schema, frame)], provenance_of("partners", layer, asked, corpus), out)
    show_answer(layer, schema, frame, output_format)


def _query_ids(layer: Layer, texts: list[str], ids: list[int]) -> list[int]:
    from detoklens.errors import TokenError

    layer.check_tokens(ids)
    if not texts and not ids:
        raise TokenError('no query token was given; name one as text, such as " Korea", or by --token-id')
    return [layer.token_id(text) for text in texts] + ids

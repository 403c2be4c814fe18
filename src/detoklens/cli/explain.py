"""`detoklens explain`: why does layer 0 attend as it does in this text?"""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from detoklens.cli import answering, asking, options
from detoklens.cli.link_summary import print_links
from detoklens.cli.output import emit, say
from detoklens.demo import NAME as DEMO

if TYPE_CHECKING:
    from detoklens.scores.layer import Layer


class ExplainTable(StrEnum):
    """The tables of this command, by the names of their files."""

    explanation = "explanation"
    links = "links"


def explain(
    model: options.Model = DEMO,
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="The text, in quotes; - reads it from standard input.")
    ] = None,
    token_ids: Annotated[
        str | None,
        typer.Option("--token-ids", metavar="464,2068", help="Token ids in place of a text.", show_default=False),
    ] = None,
    heads: options.Heads = None,
    top: Annotated[int, typer.Option("--top", min=1, help="How many links of each head are shown.")] = 3,
    prepend_bos: Annotated[
        bool, typer.Option("--prepend-bos", help="Put the model's beginning-of-text token in front.")
    ] = False,
    table: Annotated[
        ExplainTable, typer.Option("--table", help="Which table csv, json and parquet print; --out writes both.")
    ] = ExplainTable.explanation,
    output_format: options.FormatOption = options.Format.table,
    out: options.Out = None,
    revision: options.Revision = None,
) -> None:
    """Show which term explains each head's strongest links in a text.

    csv, json, parquet and --out have every pair of tokens: the terms, the score, the attention, and what the attention
    would be without each term.

    Example: detoklens explain gpt2 "Homo sapiens" --heads 7
    """
    from detoklens.analyses.explain import explain as explain_text
    from detoklens.tables.explain import explanation_schema, links_schema

    layer = asking.open_layer(model, revision)
    chosen = asking.chosen_heads(heads, layer)
    ids = _asked_ids(layer, text, token_ids, prepend_bos)
    found = explain_text(layer, ids, chosen)
    terms, links = list(found.terms.parts), found.links(top)
    if out is not None or (output_format is not options.Format.table and table is ExplainTable.explanation):
        pairs = found.pairs()
    asked = {"token_ids": ids, "heads": chosen, "top": top}
    provenance = answering.provenance_of("explain", layer, asked)
    tables = [(explanation_schema(terms), pairs), (links_schema(terms), links)] if out is not None else []
    answering.write_answer(layer, tables, provenance, out)
    if output_format is options.Format.table:
        print_links(links, terms, f"{layer.name}: {len(ids)} tokens, each head's strongest links")
    else:
        emit(links if table is ExplainTable.links else pairs, output_format)


def _asked_ids(layer: Layer, text: str | None, token_ids: str | None, prepend_bos: bool) -> list[int]:
    """The text's ids, whichever way it was given; an error where there is none."""
    from detoklens.cli.text_input import beginning_token
    from detoklens.errors import TokenError

    if (text is None) == (token_ids is None):
        raise TokenError('give either a text, such as "Homo sapiens", or --token-ids')
    ids = options.whole_numbers(token_ids, "token ids") or _encoded(layer, text or "")
    if not ids:
        raise TokenError('the text is empty: no token, so nothing attends; give a text such as "Homo sapiens"')
    return [beginning_token(layer), *ids] if prepend_bos else ids


def _encoded(layer: Layer, text: str) -> list[int]:
    from detoklens.errors import TokenError

    if text == "-":
        if sys.stdin.isatty():
            say("reading the text from standard input; end it with Ctrl-D")
        text = sys.stdin.buffer.read().decode("utf-8", errors="surrogateescape")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise TokenError(f"the text is not valid UTF-8 at character {error.start}; convert it first") from error
    return layer.vocabulary.encode(text)

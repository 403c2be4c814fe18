"""`detoklens frequency`: do rare tokens assert themselves, and do their embeddings vary more?"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from detoklens.cli import asking, options
from detoklens.cli.answering import provenance_of, show_answer, write_answer
from detoklens.cli.output import say
from detoklens.demo import NAME as DEMO


class Rows(StrEnum):
    """What a row of the printed table is."""

    head = "head"
    model = "model"
    token = "token"


class UnseenTokens(StrEnum):
    """What becomes of tokens that the corpus never shows."""

    published = "published"
    include = "include"
    exclude = "exclude"


def frequency(
    model: options.Model = DEMO,
    counts: options.CountsFolder = None,
    by: Annotated[
        Rows, typer.Option("--by", help="Print T^e by head, the embeddings of the whole model, or its tokens.")
    ] = Rows.head,
    unseen: Annotated[
        UnseenTokens,
        typer.Option(
            "--unseen",
            help="Tokens of count 0 in the correlations: in both, in none, or as published: with T^e, not with Var(e).",
        ),
    ] = UnseenTokens.published,
    heads: options.Heads = None,
    scale: asking.Scale = "mean",
    output_format: options.FormatOption = options.Format.table,
    out: options.Out = None,
    revision: options.Revision = None,
) -> None:
    """Correlate T^e, and the variance of token embeddings, with how often tokens occur (Spearman).

    Also the variance of the embeddings' norms before and after division by σ, and mean |Cov(e, p)| against mean Var(e).
    With --out, the numbers of every token too.

    Example: detoklens frequency gpt2 --counts counts --by model
    """
    from detoklens.analyses import frequency as analysis
    from detoklens.tables.frequency import EMBEDDING_VARIANCE, FREQUENCY_BY_HEAD, FREQUENCY_BY_TOKEN, SELF_ASSERTION

    layer = asking.open_layer(model, revision)
    corpus = asking.open_counts(counts, layer)
    chosen, sigma = asking.chosen_heads(heads, layer), asking.chosen_scale(scale, layer)
    if corpus is None:
        say("without --counts nothing can be correlated: those columns are empty")
    with asking.working("correlating"):
        by_head = analysis.frequency_by_head(layer, corpus, heads=chosen, scale=sigma, unseen=unseen.value)
        tables = {
            Rows.head: (FREQUENCY_BY_HEAD, by_head),
            Rows.model: (EMBEDDING_VARIANCE, analysis.embedding_variance(layer, corpus, unseen=unseen.value)),
            Rows.token: (FREQUENCY_BY_TOKEN, analysis.frequency_by_token(layer, corpus)),
        }
        asserted = analysis.self_assertion_by_token(layer, corpus, heads=chosen, scale=sigma)
    asked = {"heads": chosen, "scale": sigma, "unseen": unseen.value}
    provenance = provenance_of("frequency", layer, asked, corpus)
    write_answer(layer, [*tables.values(), (SELF_ASSERTION, asserted)], provenance, out)
    show_answer(layer, *tables[by], output_format)

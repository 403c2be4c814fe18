"""`detoklens heatmap`: what does T^ee look like for tokens drawn at random, and does a token look for itself?"""

from __future__ import annotations

from typing import Annotated

import typer

from detoklens.cli import asking, options
from detoklens.cli.answering import provenance_of, show_answer, write_answer
from detoklens.cli.watching import shown_steps
from detoklens.demo import NAME as DEMO


def heatmap(
    model: options.Model = DEMO,
    tokens: Annotated[int, typer.Option("--tokens", min=2, help="How many tokens are drawn.")] = 100,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Another seed draws other tokens.")] = 0,
    heads: options.Heads = None,
    centred: options.Centred = False,
    scale: asking.Scale = "mean",
    output_format: options.FormatOption = options.Format.table,
    out: options.Out = None,
    revision: options.Revision = None,
) -> None:
    """Draw tokens and compare each with each by T^ee, with LayerNorm's division by σ and without.

    Prints per head the range of the scores and how far the identical token stands out; with --out, all scores too.

    Example: detoklens heatmap gpt2 --tokens 300 --out heatmap/
    """
    from detoklens.analyses.heatmap import heatmap as draw_heatmap
    from detoklens.tables.heatmap import HEATMAP, HEATMAP_BY_HEAD, HEATMAP_TOKENS

    layer = asking.open_layer(model, revision)
    ranking = asking.chosen_ranking(layer, heads, scale, centred)
    with shown_steps("comparing tokens") as watch:
        drawn = draw_heatmap(layer, size=tokens, seed=seed, **ranking, watch=watch)
    tables = [(HEATMAP_BY_HEAD, drawn.by_head), (HEATMAP_TOKENS, drawn.tokens), (HEATMAP, drawn.scores)]
    asked = {"tokens": tokens, "seed": seed, **ranking}
    write_answer(layer, tables, provenance_of("heatmap", layer, asked), out)
    show_answer(layer, HEATMAP_BY_HEAD, drawn.by_head, output_format)

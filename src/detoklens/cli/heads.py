"""`detoklens heads`: what is each head like?"""

from __future__ import annotations

from typing import Annotated

import typer

from detoklens.cli import asking, options, text_input
from detoklens.cli.answering import provenance_of, show_answer, write_answer
from detoklens.demo import NAME as DEMO


def heads(
    model: options.Model = DEMO,
    counts: options.CountsFolder = None,
    sort: Annotated[str, typer.Option("--sort", metavar="COLUMN", help="The largest of this column first.")] = "head",
    ascending: Annotated[bool, typer.Option("--ascending", help="The smallest first.")] = False,
    only: options.Heads = None,
    centred: options.Centred = False,
    scale: asking.Scale = "mean",
    workers: text_input.Workers = None,
    engine: text_input.EngineName = "local",
    ray_address: text_input.RayAddress = None,
    output_format: options.FormatOption = options.Format.table,
    out: options.Out = None,
    revision: options.Revision = None,
) -> None:
    """Show one row a head: what it joins, whether it looks for itself, where it looks, what kind of form W_QK is.

    AUROC and the correlation with frequency need --counts; without them those columns are empty.

    Example: detoklens heads gpt2 --counts counts --sort above_null
    """
    from detoklens.analyses.heads import head_cards, sorted_cards
    from detoklens.tables.heads import HEADS

    layer = asking.open_layer(model, revision)
    corpus = asking.open_counts(counts, layer)
    ranking = asking.chosen_ranking(layer, only, scale, centred)
    asking.check_column(sort, HEADS)
    provenance = provenance_of("heads", layer, ranking, corpus)
    with text_input.opened_runner("judging heads", engine, workers, ray_address, out, provenance) as runner:
        cards = head_cards(layer, corpus, **ranking, runner=runner)
    cards = sorted_cards(cards, sort, ascending or sort == "head")
    write_answer(layer, [(HEADS, cards)], provenance, out)
    runner.finish()
    show_answer(layer, HEADS, cards, output_format)

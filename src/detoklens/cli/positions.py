"""`detoklens positions`: where does position alone pull attention?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from detoklens.cli import answering, asking, options, position_asking
from detoklens.cli.output import emit, say, shown
from detoklens.cli.sparkline import sparkline
from detoklens.cli.watching import shown_steps
from detoklens.demo import NAME as DEMO

if TYPE_CHECKING:
    import polars as pl

PIPE_WIDTH, OTHER_COLUMNS = 100, 65  # characters


def positions(
    model: options.Model = DEMO,
    query_positions: position_asking.QueryPositions = None,
    average: position_asking.Average = position_asking.AverageName.ratio_of_mean,
    weights: position_asking.Weights = position_asking.WeightsName.even,
    counts: options.CountsFolder = None,
    band: Annotated[float, typer.Option("--band", help="Share of the vocabulary within the band.")] = 0.95,
    heads: options.Heads = None,
    output_format: options.FormatOption = options.Format.table,
    out: options.Out = None,
    revision: options.Revision = None,
) -> None:
    """Show T^p, T^pp, their sum and its softmax along the keys, with their spread over the vocabulary.

    The table for eyes draws each curve in one line; csv, json and parquet have every key position, with and without
    LayerNorm, the mean, the band, and the values at the vocabulary's smallest and largest σ.

    Example: detoklens positions gpt2 --query-positions 50,500,1000 --heads 1,7
    """
    import polars as pl

    from detoklens.analyses.positions import chosen_queries
    from detoklens.analyses.positions import positions as position_terms
    from detoklens.tables.positions import POSITIONS

    layer = asking.open_layer(model, revision)
    queries = chosen_queries(layer, options.whole_numbers(query_positions, "query positions"))
    chosen = asking.chosen_heads(heads, layer)
    vocabulary = position_asking.weighted_vocabulary(layer, weights, counts)
    with shown_steps("σ of every token at every position") as watch:
        frame = position_terms(layer, queries, average.value, vocabulary.token_weights, band, watch)
    frame = frame.filter(pl.col("head").is_in(chosen))
    asked = position_asking.asked(queries, average, weights, band=band, heads=chosen)
    provenance = answering.provenance_of("positions", layer, asked, vocabulary.counts)
    answering.write_answer(layer, [(POSITIONS, frame)], provenance, out)
    if output_format is options.Format.table:
        _draw(frame, f"{layer.name}: {POSITIONS.question}")
        say(f"{len(frame):,} numbers with their bands: --format csv, or --out DIR")
    else:
        emit(frame, output_format)


def _draw(frame: pl.DataFrame, title: str) -> None:
    """One line per curve with LayerNorm: its ends, its peak, its course from the first key to the last."""
    import polars as pl
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    table = Table(title=Text(title), box=SIMPLE_HEAD, title_justify="left")
    for name in ("head", "quantity", "query", "lowest", "highest", "at key", "along the keys"):
        table.add_column(name, justify="left" if name in ("quantity", "along the keys") else "right", no_wrap=True)
    curves = frame.filter(pl.col("layer_norm") & (pl.col("quantity") != "p+pp")).sort("head", maintain_order=True)
    for (head, quantity, query), curve in curves.group_by("head", "quantity", "query_position", maintain_order=True):
        values = curve["mean"].to_list()
        cells = (str(head), str(quantity), shown(query), f"{min(values):.3g}", f"{max(values):.3g}")
        drawn = Text(sparkline(values, max(10, console.width - OTHER_COLUMNS)), style="cyan")
        table.add_row(*cells, str(values.index(max(values))), drawn)
    console.print(table)

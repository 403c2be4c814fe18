"""`detoklens shape`: is T^p a line, is T^pp a wave, and how near does their sum pull attention?"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from detoklens.cli import answering, asking, options, position_asking
from detoklens.cli.output import emit
from detoklens.cli.watching import shown_steps
from detoklens.demo import NAME as DEMO

if TYPE_CHECKING:
    import polars as pl


class ShapeTable(StrEnum):
    """The tables of this command, by the names of their files."""

    shape = "shape"
    waves = "waves"


def shape(
    model: options.Model = DEMO,
    query_positions: position_asking.QueryPositions = None,
    average: position_asking.Average = position_asking.AverageName.ratio_of_mean,
    weights: position_asking.Weights = position_asking.WeightsName.even,
    counts: options.CountsFolder = None,
    heads: options.Heads = None,
    table: Annotated[
        ShapeTable, typer.Option("--table", help="Which table csv, json and parquet print; --out writes both.")
    ] = ShapeTable.shape,
    output_format: options.FormatOption = options.Format.table,
    out: options.Out = None,
    revision: options.Revision = None,
) -> None:
    """Put the shape of the position terms in numbers, per head.

    The best line through T^p (linear as ALiBi?), the leading waves of T^pp (sinusoidal?), the attention that the
    softmax of their sum puts on the last 1, 5 and 15 tokens, its entropy, and a class: self, previous token, first,
    local or broad.

    Example: detoklens shape gpt2 --query-positions 500
    """
    import polars as pl

    from detoklens.analyses.positions import chosen_queries
    from detoklens.analyses.shape import shape as find_shape
    from detoklens.tables.shape import SHAPE, WAVES

    layer = asking.open_layer(model, revision)
    queries = chosen_queries(layer, options.whole_numbers(query_positions, "query positions"))
    chosen = asking.chosen_heads(heads, layer)
    vocabulary = position_asking.weighted_vocabulary(layer, weights, counts)
    with shown_steps("σ of every token at every position") as watch:
        found = find_shape(layer, queries, average.value, vocabulary.token_weights, watch)
    shapes, waves = (frame.filter(pl.col("head").is_in(chosen)) for frame in found)
    asked = position_asking.asked(queries, average, weights, heads=chosen)
    provenance = answering.provenance_of("shape", layer, asked, vocabulary.counts)
    answering.write_answer(layer, [(SHAPE, shapes), (WAVES, waves)], provenance, out)
    if output_format is options.Format.table:
        _show(shapes, layer.name)
    else:
        emit(shapes if table is ShapeTable.shape else waves, output_format)


def _show(shapes: pl.DataFrame, name: str) -> None:
    """Three tables that fit a terminal: the line, the wave, the pull."""
    import polars.selectors as cs

    line = ["head", "slope", "alibi_slope", "r_squared", "linear"]
    wave = ["head", "query", "period", "wave_share", "waves_share", "sinusoidal"]
    pull = ["head", "query", "last_1", "last_5", "last_15", "entropy", "class"]
    by_head = shapes.sort("head", "query_position").rename({"query_position": "query"})
    rounded = by_head.with_columns(cs.starts_with("last_").round(3))
    table = options.Format.table
    emit(by_head.select(line).unique(maintain_order=True), table, f"{name}: is T^p a line?")
    emit(by_head.select(wave), table, f"{name}: is T^pp a wave?")
    emit(rounded.select(pull), table, f"{name}: where does the softmax of T^p + T^pp look?")

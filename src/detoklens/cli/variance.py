"""`detoklens variance`: which positions stand out, and what follows for attention?"""

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

    from detoklens.analyses.variance import Variance

ENDS = 10  # positions shown from either end


class VarianceTable(StrEnum):
    """The tables of this command, by the names of their files."""

    position_variance = "position_variance"
    switch = "switch"
    undertrained = "undertrained"
    last_queries = "last_queries"


def variance(
    model: options.Model = DEMO,
    average: position_asking.Average = position_asking.AverageName.ratio_of_mean,
    weights: position_asking.Weights = position_asking.WeightsName.even,
    counts: options.CountsFolder = None,
    table: Annotated[
        VarianceTable, typer.Option("--table", help="Which table csv, json and parquet print; --out writes all.")
    ] = VarianceTable.position_variance,
    output_format: options.FormatOption = options.Format.table,
    out: options.Out = None,
    revision: options.Revision = None,
) -> None:
    """Show the variance of position embeddings, the switch at position 0, and how far the last position departs.

    The table for eyes has the first ten positions, the last ten, and the outliers; csv, json and parquet have all.

    Example: detoklens variance gpt2
    """
    from detoklens.analyses.variance import variance as find_variance
    from detoklens.tables import variance as schemas

    layer = asking.open_layer(model, revision)
    vocabulary = position_asking.weighted_vocabulary(layer, weights, counts)
    with shown_steps("σ of every token at every position") as watch:
        found = find_variance(layer, average.value, vocabulary.token_weights, watch)
    tables = [
        (schemas.POSITION_VARIANCE, found.position_variance),
        (schemas.SWITCH, found.switch),
        (schemas.UNDERTRAINED, found.undertrained),
        (schemas.LAST_QUERIES, found.last_queries),
    ]
    asked = {"average": average.value, "weights": weights.value}
    provenance = answering.provenance_of("variance", layer, asked, vocabulary.counts)
    answering.write_answer(layer, tables, provenance, out)
    if output_format is options.Format.table:
        _show(found, layer.name)
    else:
        emit(getattr(found, table.value), output_format)


def _show(found: Variance, name: str) -> None:
    table = options.Format.table
    emit(_exceptional(found.position_variance), table, f"{name}: which positions stand out?")
    switch = found.switch.drop("next_without_norm", "jump_without_norm", "by_score")
    switch = switch.rename({"first_without_norm": "first, no LN"})
    emit(switch, table, f"{name}: how much of position 0's jump in T^p is LayerNorm's?")
    emit(found.undertrained, table, f"{name}: does the last query position depart in T^pp without LayerNorm?")


def _exceptional(positions: pl.DataFrame) -> pl.DataFrame:
    """The first ten positions, the last ten, and the outliers."""
    import polars as pl

    place = pl.col("position")
    return positions.filter((place < ENDS) | (place >= len(positions) - ENDS) | pl.col("outlier"))

"""How much does σ change what a query position looks for? T^pp with the vocabulary's mean, largest and smallest σ."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from matplotlib.figure import Figure

from detoklens.figures.position_curves import chosen_queries, middle, query_curves, rows_of
from detoklens.figures.theme import Width, figure_function


@figure_function
def position_scales(
    positions: pl.DataFrame, *, heads: Sequence[int] | None = None, query: int | None = None, width: Width = "page"
) -> Figure:
    """How much does σ change what a query position looks for? At one query (default: the table's middle one)."""
    asked = query if query is not None else middle(chosen_queries(rows_of(positions, "pp"), None))
    return query_curves(positions, "pp", "position and position (Tᵖᵖ)", heads, [asked], width)

"""What does a query position look for among key positions? T^pp."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from matplotlib.figure import Figure

from detoklens.figures.position_curves import query_curves
from detoklens.figures.theme import Width, figure_function


@figure_function
def position_comparison(
    positions: pl.DataFrame,
    *,
    heads: Sequence[int] | None = None,
    queries: Sequence[int] | None = None,
    width: Width = "page",
) -> Figure:
    """What does a query position look for among key positions? T^pp."""
    return query_curves(positions, "pp", "position and position (Tᵖᵖ)", heads, queries, width)

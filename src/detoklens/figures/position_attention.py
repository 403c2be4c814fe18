"""What would attention be if positions were all there is? softmax of T^p + T^pp."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from matplotlib.figure import Figure

from detoklens.figures.position_curves import query_curves
from detoklens.figures.theme import Width, figure_function


@figure_function
def position_attention(
    positions: pl.DataFrame,
    *,
    heads: Sequence[int] | None = None,
    queries: Sequence[int] | None = None,
    width: Width = "page",
) -> Figure:
    """What would attention be if positions were all there is? softmax of T^p + T^pp."""
    return query_curves(positions, "attention", "attention by position alone", heads, queries, width)

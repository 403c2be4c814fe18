"""Does attention on the nearest keys look as position alone predicts? The last keys before one query, enlarged."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from matplotlib.figure import Figure

from detoklens.figures.attention import attention as draw_attention
from detoklens.figures.theme import Width

NEAR = 30  # keys


def attention_near(
    attention: pl.DataFrame, *, heads: Sequence[int] | None = None, query: int | None = None, width: Width = "page"
) -> Figure:
    """How much does real text attend to the nearest keys, and what did position alone predict?"""
    return draw_attention(attention, heads=heads, query=query, last=NEAR, width=width)

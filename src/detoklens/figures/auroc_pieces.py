"""Which heads glue words together? AUROC by head over query tokens that continue a word."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from matplotlib.figure import Figure

from detoklens.figures.auroc import auroc
from detoklens.figures.theme import Width

TITLE = "mean AUROC over query tokens that continue a word"


def auroc_pieces(
    auroc_pieces_by_head: pl.DataFrame,
    auroc_pieces_controls: pl.DataFrame | None = None,
    *,
    heads: Sequence[int] | None = None,
    width: Width = "page",
) -> Figure:
    """How high is each head's AUROC over bigrams that end in a piece of a word?"""
    return auroc(auroc_pieces_by_head, auroc_pieces_controls, heads=heads, title=TITLE, width=width)

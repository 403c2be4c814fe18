"""What makes the score of each head vary? One stacked bar per head, with the head's strength."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from matplotlib.figure import Figure

from detoklens.figures import theme
from detoklens.figures.marks import patch_entry, point_entry
from detoklens.figures.panels import chosen_heads, head_rows, in_order, points, stacked
from detoklens.questions.anatomy.question import SHARE_NAMES

STRENGTH, LEXICAL = theme.Style(theme.INK, "solid", "o", ""), theme.SERIES[4]


@theme.figure_function
def anatomy(
    anatomy_by_head: pl.DataFrame, *, heads: Sequence[int] | None = None, width: theme.Width = "page"
) -> Figure:
    """What makes the score of each head vary?"""
    asked = chosen_heads(anatomy_by_head, heads)
    rows = in_order(anatomy_by_head, asked)
    styles = [theme.style_of(place) for place in range(len(SHARE_NAMES))]
    legend = [patch_entry(name, style) for name, style in zip(SHARE_NAMES.values(), styles, strict=True)]
    legend += [point_entry("score", STRENGTH), point_entry("token pair at offset 1", LEXICAL, filled=False)]
    figure, (shares, strength) = head_rows(asked, width, ["share of score variance", "sd of the score"], legend=legend)
    stacked(shares, [rows[column] for column in SHARE_NAMES], styles, shift=0.0, height=0.7)
    shares.set_xlim(0, 1)
    points(strength, rows["sd"], STRENGTH)
    points(strength, rows["lexical_sd"], LEXICAL, filled=False)
    strength.set_xlim(left=0)
    return figure

"""How strongly does each head join its strongest pairs? Score by rank, all heads in one panel."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from matplotlib.figure import Figure

from detoklens.figures import theme
from detoklens.figures.marks import line, line_entry, logarithmic_x
from detoklens.figures.panels import titled_panels
from detoklens.figures.position_curves import chosen_heads
from detoklens.figures.wording import head_name

OTHERS = theme.Style(theme.INK, "solid", "o", "")


@theme.figure_function
def lexicon_scores(lexicon: pl.DataFrame, *, heads: Sequence[int] | None = None, width: theme.Width = "page") -> Figure:
    """How large is T^ee of each head's strongest pairs? The six highest heads are named, the others faint."""
    rows = lexicon.filter(pl.col("head").is_in(chosen_heads(lexicon, heads))).sort("rank")
    best = rows.group_by("head").agg(pl.col("score").max()).sort("score", "head", descending=[True, False])
    named = {head: theme.style_of(place) for place, head in enumerate(best["head"].head(len(theme.SERIES)))}
    figure, (axes,) = titled_panels(
        ["strongest pairs over the whole vocabulary"],
        width,
        x_label="rank of the pair",
        y_label="token and token (Tᵉᵉ)",
        legend=[line_entry(head_name(head), style) for head, style in named.items()],
    )
    for head in reversed(best["head"].to_list()):
        pairs = rows.filter(head=head)
        look = {} if head in named else {"alpha": theme.FAINT * 2, "linewidth": 0.6}
        line(axes, pairs["rank"], pairs["score"], named.get(head, OTHERS), **look)
    logarithmic_x(axes)
    return figure

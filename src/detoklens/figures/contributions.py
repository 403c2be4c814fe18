"""Which term matters? KL divergence when a term is left out, over query positions."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from detoklens.figures import theme
from detoklens.figures.marks import line, line_entry, logarithmic_y
from detoklens.figures.panels import head_panels
from detoklens.figures.position_curves import chosen_heads
from detoklens.figures.wording import QUERY_POSITION, term_name, terms_in_order


@theme.figure_function
def contributions(
    contributions: pl.DataFrame, *, heads: Sequence[int] | None = None, width: theme.Width = "page"
) -> Figure:
    """How much would the attention on real text change if a term were missing?"""
    terms = terms_in_order(contributions["term"])
    legend = [line_entry(term_name(term), theme.style_of(place)) for place, term in enumerate(terms)]
    figure, panels = head_panels(
        chosen_heads(contributions, heads),
        width,
        x_label=QUERY_POSITION,
        y_label="KL without the term (nats)",
        legend=legend,
    )
    # query 0 has one key: nothing can change there, and rounding would be all that a logarithmic axis shows
    changeable = contributions.filter(pl.col("query_position") > 0).sort("query_position")
    for head, axes in panels.items():
        _draw_head(axes, changeable.filter(head=head), terms)
    return figure


def _draw_head(axes: Axes, rows: pl.DataFrame, terms: Sequence[str]) -> None:
    for place, term in enumerate(terms):
        curve = rows.filter(term=term)
        positive = curve.select(pl.when(pl.col("kl") > 0).then(pl.col("kl")))["kl"]
        line(axes, curve["query_position"], positive, theme.style_of(place), linewidth=0.9)
    logarithmic_y(axes, rows["kl"])

"""Which terms carry a head's attention? Each term's share of the head's KL divergences."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from matplotlib.figure import Figure

from detoklens.figures import theme
from detoklens.figures.head_rows import head_rows, in_order
from detoklens.figures.marks import patch_entry
from detoklens.figures.position_curves import chosen_heads
from detoklens.figures.stacked_rows import stacked
from detoklens.figures.wording import term_name, terms_in_order


@theme.figure_function
def contribution_shares(
    contributions_by_head: pl.DataFrame, *, heads: Sequence[int] | None = None, width: theme.Width = "page"
) -> Figure:
    """Which terms carry a head's attention, over all its query positions?"""
    asked = chosen_heads(contributions_by_head, heads)
    terms = terms_in_order(contributions_by_head["term"])
    styles = [theme.style_of(place) for place in range(len(terms))]
    legend = [patch_entry(term_name(term), style) for term, style in zip(terms, styles, strict=True)]
    figure, (axes,) = head_rows(asked, width, ["share of the terms' KL divergences"], legend=legend)
    parts = [in_order(contributions_by_head.filter(term=term), asked)["share"] for term in terms]
    stacked(axes, parts, styles, shift=0.0, height=0.7)
    axes.set_xlim(0, 1)
    return figure

"""Which terms matter in which checkpoint? Each term's share, mean over heads."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
from matplotlib.figure import Figure

from detoklens.figures import theme
from detoklens.figures.marks import line, line_entry
from detoklens.figures.panels import name_places, titled_panels
from detoklens.figures.wording import term_name, terms_in_order


@theme.figure_function
def compare_contributions(contributions_by_label: Mapping[str, pl.DataFrame], *, width: theme.Width = "page") -> Figure:
    """Which terms matter in which checkpoint?"""
    joined = pl.concat(
        [table.with_columns(place=pl.lit(place)) for place, table in enumerate(contributions_by_label.values())]
    )
    terms = terms_in_order(joined["term"])
    figure, panels = titled_panels(
        ["mean over heads"],
        width,
        x_label="checkpoint",
        y_label="share of the terms' KL",
        legend=[line_entry(term_name(term), theme.style_of(place), marker=True) for place, term in enumerate(terms)],
        tick_names=list(contributions_by_label),
    )
    means = joined.group_by("term", "place").agg(pl.col("share").mean()).sort("place")
    for place, term in enumerate(terms):
        values = means.filter(term=term)
        line(panels[0], values["place"], values["share"], theme.style_of(place), marker=theme.style_of(place).marker)
    name_places(panels, list(contributions_by_label))
    return figure

"""Which heads glue tokens together? AUROC by head with its interval, beside its nulls and frequency alone."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from matplotlib.artist import Artist
from matplotlib.figure import Figure

from detoklens.figures import theme
from detoklens.figures.head_rows import head_rows, in_order, intervals, points
from detoklens.figures.marks import point_entry, reference
from detoklens.figures.position_curves import chosen_heads

AUROC = theme.SERIES[0]
CONTROLS = {
    "shuffled_queries": ("null: queries exchanged", theme.SERIES[1]),
    "permuted_keys": ("null: keys permuted", theme.SERIES[2]),
    "frequency": ("frequency alone", theme.SERIES[3]),
}
MEASURES = {
    "seen": "mean AUROC over query tokens seen in the corpus",
    "all": "mean AUROC over all query tokens, unseen as 0",
    "weighted": "mean AUROC over query tokens, weighted by their bigrams",
}


@theme.figure_function
def auroc(
    auroc_by_head: pl.DataFrame,
    auroc_controls: pl.DataFrame | None = None,
    *,
    heads: Sequence[int] | None = None,
    measure: str = "seen",
    title: str | None = None,
    width: theme.Width = "page",
) -> Figure:
    """How high is each head's AUROC (`seen`, `all` or `weighted`), and how much would remain without the query?"""
    asked = chosen_heads(auroc_by_head, heads)
    legend: list[Artist] = [point_entry("AUROC and its interval", AUROC)]
    if auroc_controls is not None:
        legend += [point_entry(label, style, filled=False) for label, style in CONTROLS.values()]
    figure, (axes,) = head_rows(asked, width, [title or MEASURES[measure]], legend=legend)
    if auroc_controls is not None:
        for column, (_, style) in CONTROLS.items():
            points(axes, in_order(auroc_controls, asked)[column], style, filled=False)
    rows = in_order(auroc_by_head, asked)
    intervals(axes, rows[f"{measure}_low"], rows[f"{measure}_high"], AUROC)
    points(axes, rows[measure], AUROC)
    reference(axes, x=0.5)
    return figure

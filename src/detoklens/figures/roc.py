"""How do a head's scores separate the tokens that precede a token from all others? One curve a query token."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from detoklens.figures import theme
from detoklens.figures.marks import line, line_entry
from detoklens.figures.panels import head_panels
from detoklens.figures.position_curves import chosen_heads
from detoklens.figures.wording import number, token_label

MOST_TOKENS = len(theme.SERIES)


@theme.figure_function
def roc(
    roc_points: pl.DataFrame,
    auroc_by_token: pl.DataFrame | None = None,
    *,
    heads: Sequence[int] | None = None,
    tokens: Sequence[int] | None = None,
    width: theme.Width = "page",
) -> Figure:
    """What share of the bigrams is found above each threshold? For the given query tokens, or the first six."""
    named = roc_points.select("token_id", "token").unique(maintain_order=True)
    asked = list(tokens) if tokens is not None else named["token_id"].head(MOST_TOKENS).to_list()
    labels = dict(named.iter_rows())
    figure, panels = head_panels(
        chosen_heads(roc_points, heads),
        width,
        x_label="other tokens found (false positive rate)",
        y_label="bigrams found (true positive rate)",
        legend=[line_entry(token_label(labels.get(token)), theme.style_of(place)) for place, token in enumerate(asked)],
        proportion=1.0,
        share_y=True,
    )
    for head, axes in panels.items():
        axes.plot([0, 1], [0, 1], color=theme.INK, alpha=theme.SOFT, linewidth=0.5, label=theme.REFERENCE)
        for place, token in enumerate(asked):
            curve = roc_points.filter(head=head, token_id=token).sort("false_positive_rate", "true_positive_rate")
            line(axes, curve["false_positive_rate"], curve["true_positive_rate"], theme.style_of(place))
        if auroc_by_token is not None:
            _write_areas(axes, auroc_by_token.filter(head=head), asked)
        axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    return figure


def _write_areas(axes: Axes, areas: pl.DataFrame, tokens: Sequence[int]) -> None:
    """Each curve's area in the lower right corner, in the curve's colour and in the legend's order."""
    for place, token in enumerate(reversed(tokens)):
        area = areas.filter(token_id=token)["auroc"]
        style = theme.style_of(len(tokens) - 1 - place)
        axes.annotate(
            number(area[0] if len(area) else None),
            (1.0, 0.0),
            xytext=(-2, 2 + place * 7.2),
            xycoords="axes fraction",
            textcoords="offset points",
            ha="right",
            fontsize=theme.SMALL_SIZE,
            color=style.colour,
        )

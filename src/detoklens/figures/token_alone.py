"""Do rare tokens assert themselves? T^e of every token against its frequency, Spearman's correlation per head."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from matplotlib.figure import Figure

from detoklens.figures import theme
from detoklens.figures.marks import cloud, logarithmic_x
from detoklens.figures.panels import titled_panels
from detoklens.figures.position_curves import chosen_heads
from detoklens.figures.wording import COUNT, head_name, number


@theme.figure_function
def token_alone(
    self_assertion: pl.DataFrame,
    frequency_by_head: pl.DataFrame | None = None,
    *,
    heads: Sequence[int] | None = None,
    width: theme.Width = "page",
) -> Figure:
    """How strongly does each token assert itself, whoever asks, and do rare ones more?"""
    asked = chosen_heads(self_assertion, heads)
    correlations = _correlations(frequency_by_head)
    titles = [
        f"{head_name(head)} ρ {number(correlations[head])}" if head in correlations else head_name(head)
        for head in asked
    ]
    figure, panels = titled_panels(titles, width, x_label=COUNT, y_label="token alone (Tᵉ)")
    for head, axes in zip(asked, panels, strict=True):
        rows = self_assertion.filter(head=head)
        cloud(axes, rows["count"] + 1, rows["score"], theme.SERIES[0])
        logarithmic_x(axes)
    return figure


def _correlations(frequency_by_head: pl.DataFrame | None) -> dict[int, float | None]:
    return dict(frequency_by_head.select("head", "spearman").iter_rows()) if frequency_by_head is not None else {}

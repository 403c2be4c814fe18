"""Do rare tokens have larger embeddings? Variance of each token's embedding against its frequency."""

from __future__ import annotations

import polars as pl
from matplotlib.figure import Figure

from detoklens.figures import theme
from detoklens.figures.marks import cloud, logarithmic_x
from detoklens.figures.panels import titled_panels
from detoklens.figures.wording import COUNT, number


@theme.figure_function
def token_variance(
    frequency_by_token: pl.DataFrame, embedding_variance: pl.DataFrame | None = None, *, width: theme.Width = "page"
) -> Figure:
    """How does the variance of token embeddings go with frequency?"""
    figure, (axes,) = titled_panels(
        [_title(embedding_variance)], width, x_label=COUNT, y_label="variance of the embedding"
    )
    cloud(axes, frequency_by_token["count"] + 1, frequency_by_token["variance"], theme.SERIES[0])
    logarithmic_x(axes)
    return figure


def _title(embedding_variance: pl.DataFrame | None) -> str:
    if embedding_variance is None or embedding_variance.is_empty():
        return "token embeddings"
    row = embedding_variance.row(0, named=True)
    return f"token embeddings  ρ = {number(row['spearman'])} over {row['spearman_tokens']} tokens"

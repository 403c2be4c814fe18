"""Tᵉ and the variance of each token embedding against frequency."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from matplotlib.figure import Figure

from detoklens.figures import theme
from detoklens.figures.labels import COUNT, number
from detoklens.figures.marks import cloud, logarithmic_x
from detoklens.figures.panels import PAIRS_PER_INCH, chosen_heads, titled_panels
from detoklens.wording import head_name, term_name


def token_alone(
    self_assertion: pl.DataFrame,
    frequency_by_head: pl.DataFrame | None = None,
    *,
    heads: Sequence[int] | None = None,
    width: theme.Width = "page",
) -> Figure:
    """Tᵉ of each token against its frequency, with and, where the heads leave space, without LayerNorm."""
    asked = chosen_heads(self_assertion, heads)
    variants = {"score": ("spearman", ""), "score_without_norm": ("spearman_without_norm", ", no LN")}
    if len(asked) > PAIRS_PER_INCH * theme.inches(width):
        del variants["score_without_norm"]
    pairs = [(head, column) for head in asked for column in variants]
    titles = [_head_title(head, *variants[column], frequency_by_head) for head, column in pairs]
    figure, panels = titled_panels(titles, width, x_label=COUNT, y_label=term_name("e"), columns=len(variants))
    for (head, column), axes in zip(pairs, panels, strict=True):
        rows = self_assertion.filter(head=head)
        cloud(axes, rows["count"] + 1, rows[column])
        logarithmic_x(axes)
    return figure


def _head_title(head: int, correlation: str, variant: str, by_head: pl.DataFrame | None) -> str:
    found = by_head.filter(head=head)[correlation].to_list() if by_head is not None else []
    return head_name(head) + variant + (f": ρ {number(found[0])}" if found else "")


def token_variance(
    frequency_by_token: pl.DataFrame, embedding_variance: pl.DataFrame | None = None, *, width: theme.Width = "page"
) -> Figure:
    """Variance of each token embedding against its frequency."""
    figure, (axes,) = titled_panels(
        [_title(embedding_variance)], width, x_label=COUNT, y_label="variance of the embedding"
    )
    cloud(axes, frequency_by_token["count"] + 1, frequency_by_token["variance"])
    logarithmic_x(axes)
    return figure


def _title(embedding_variance: pl.DataFrame | None) -> str:
    if embedding_variance is None or embedding_variance.is_empty():
        return "token embeddings"
    row = embedding_variance.row(0, named=True)
    return f"token embeddings: ρ = {number(row['spearman'])} over {row['spearman_tokens']} tokens"

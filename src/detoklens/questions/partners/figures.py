"""The top keys of each query token and head, as a printed table."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from matplotlib.figure import Figure

from detoklens.figures import theme
from detoklens.figures.labels import token_name
from detoklens.figures.panels import EDGE, LABEL, chosen_heads
from detoklens.wording import head_name

LINE = 0.125  # inches
NARROWEST = 0.92  # inches for a token's name
MOST_LETTERS = 15
MOST_BLOCKS = 24  # one per head and query token, unless tokens are given


def partners(
    partners: pl.DataFrame,
    *,
    heads: Sequence[int] | None = None,
    tokens: Sequence[int] | None = None,
    top: int = 8,
    width: theme.Width = "page",
) -> Figure:
    """Write the keys with the largest Tᵉᵉ for the given query tokens, or the first few."""
    named = partners.select("query_token_id", "query_token").unique(maintain_order=True)
    shown, labels = chosen_heads(partners, heads), dict(named.iter_rows())
    few = max(1, MOST_BLOCKS // max(1, len(shown)))
    asked = list(tokens) if tokens is not None else named["query_token_id"].head(few).to_list()
    blocks = [(token, head) for token in asked for head in shown]
    rows = partners.filter(pl.col("rank") <= top).sort("rank")
    figure, places = _blank_blocks(len(blocks), len(shown), top, theme.inches(width))
    for (token, head), (left, upper) in zip(blocks, places, strict=True):
        found = rows.filter(query_token_id=token, head=head).select("key_token", "key_token_id")
        keys = [token_name(text, key, MOST_LETTERS) for text, key in found.iter_rows()]
        _write_block(figure, left, upper, f"{token_name(labels.get(token), token)}  {head_name(head)}", keys)
    return figure


def _blank_blocks(blocks: int, heads: int, lines: int, total: float) -> tuple[Figure, list[tuple[float, float]]]:
    """An empty figure and each block's upper left corner, in inches from the left and from the top."""
    columns = max(1, min(blocks, int(total / NARROWEST)))
    if columns > heads > 0:
        columns -= columns % heads  # a token's heads are on one line
    rows = -(-blocks // columns)
    tall = LABEL + lines * LINE + LABEL / 2
    figure = theme.blank_figure(total, max(1, rows) * tall)
    step = total / columns
    return figure, [(EDGE + index % columns * step, index // columns * tall) for index in range(blocks)]


def _write_block(figure: Figure, left: float, upper: float, title: str, keys: Sequence[str]) -> None:
    wide, tall = figure.get_size_inches()
    lines = [title, *(f"{rank}  {key}" for rank, key in enumerate(keys, 1))]
    for place, text in enumerate(lines if len(keys) else [title, "no data"]):
        y = 1 - (upper + 0.03 + place * LINE + (0.03 if place else 0)) / tall
        weight = "normal" if place else "bold"
        figure.text(left / wide, y, text, va="top", fontsize=theme.SMALL_SIZE, fontweight=weight)

"""Shares of words and corpus pairs among a head's strongest pairs, and their scores by rank."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from matplotlib.figure import Figure

from detoklens.figures import theme
from detoklens.figures.marks import line, line_entry, logarithmic_x
from detoklens.figures.panels import chosen_heads, head_panels, titled_panels
from detoklens.wording import head_name, term_name

SHARES = {
    "is_word": ("joined text is a word", theme.SERIES[0]),
    "seen": ("pair occurs in the corpus", theme.SERIES[1]),
}
OTHERS = theme.Style(theme.INK, "solid", "o", "")


def lexicon(lexicon: pl.DataFrame, *, heads: Sequence[int] | None = None, width: theme.Width = "page") -> Figure:
    """Draw the share of words and of corpus pairs among each head's strongest pairs, up to each rank."""
    seen = pl.col("count") > 0 if "count" in lexicon.columns else pl.lit(None, dtype=pl.Boolean)
    rows = lexicon.with_columns(seen=seen).sort("head", "rank")
    shares = {column: share for column, share in SHARES.items() if rows[column].is_not_null().any()}
    figure, panels = head_panels(
        chosen_heads(lexicon, heads),
        width,
        x_label="strongest pairs, up to rank",
        y_label="share of pairs",
        legend=[line_entry(label, style) for label, style in shares.values()],
        share_y=True,
    )
    for head, axes in panels.items():
        pairs = rows.filter(head=head)
        for column, (_, style) in shares.items():
            line(axes, pairs["rank"], _share_up_to(pairs[column]), style)
        logarithmic_x(axes)
        axes.set_ylim(-0.03, 1.03)
    return figure


def _share_up_to(found: pl.Series) -> pl.Series:
    """Running mean over the ranks; undefined pairs count neither way."""
    table = pl.DataFrame({"found": found.cast(pl.Float64)})
    known = pl.col("found").is_not_null().cum_sum()
    return table.select(pl.col("found").fill_null(0).cum_sum() / pl.when(known > 0).then(known)).to_series()


def lexicon_scores(lexicon: pl.DataFrame, *, heads: Sequence[int] | None = None, width: theme.Width = "page") -> Figure:
    """Draw Tᵉᵉ of each head's strongest pairs by rank. The six highest heads are named, the others faint."""
    rows = lexicon.filter(pl.col("head").is_in(chosen_heads(lexicon, heads))).sort("rank")
    best = rows.group_by("head").agg(pl.col("score").max()).sort("score", "head", descending=[True, False])
    named = {head: theme.style_of(place) for place, head in enumerate(best["head"].head(len(theme.SERIES)))}
    figure, (axes,) = titled_panels(
        ["strongest pairs over the whole vocabulary"],
        width,
        x_label="rank of the pair",
        y_label=term_name("ee"),
        legend=[line_entry(head_name(head), style) for head, style in named.items()],
    )
    for head in reversed(best["head"].to_list()):
        pairs = rows.filter(head=head)
        look = {} if head in named else {"alpha": theme.BESIDE, "linewidth": 0.6}
        line(axes, pairs["rank"], pairs["score"], named.get(head, OTHERS), **look)
    logarithmic_x(axes)
    return figure

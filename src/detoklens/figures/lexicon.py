"""What do a head's strongest pairs join to? Share of words, and of pairs seen in the corpus, up to each rank."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from matplotlib.figure import Figure

from detoklens.figures import theme
from detoklens.figures.marks import line, line_entry, logarithmic_x
from detoklens.figures.panels import head_panels
from detoklens.figures.position_curves import chosen_heads

SHARES = {
    "is_word": ("joined text is a word", theme.SERIES[0]),
    "seen": ("pair occurs in the corpus", theme.SERIES[1]),
}


@theme.figure_function
def lexicon(lexicon: pl.DataFrame, *, heads: Sequence[int] | None = None, width: theme.Width = "page") -> Figure:
    """Which share of a head's strongest pairs, up to each rank, joins to a word, and which occurs in the corpus?"""
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

"""What is each head like? Every number of the head cards, one row a head."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from matplotlib.figure import Figure

from detoklens.figures import theme
from detoklens.figures.head_rows import Measure, head_rows, in_order, points, show_neutral
from detoklens.figures.marks import point_entry
from detoklens.figures.position_curves import chosen_heads
from detoklens.figures.wording import head_name

MEASURES = (
    Measure("auroc", "AUROC\n(bigrams)", 0.5),
    Measure("word_share", "rank share\nin words", 0.5),
    Measure("self_match", "self-match\n(z of Tᵉᵉ)", 0.0),
    Measure("frequency_spearman", "ρ of Tᵉ with\nfrequency", 0.0),
    Measure("symmetric_share", "symmetric\nshare"),
    Measure("effective_rank", "effective\nrank"),
    Measure("spectral_norm", "spectral\nnorm"),
)
WIDE_ENOUGH = 5.0  # inches of a figure whose rows also say what the head prefers by position
HEAD, NULL = theme.SERIES[0], theme.SERIES[1]


@theme.figure_function
def head_cards(heads_table: pl.DataFrame, *, heads: Sequence[int] | None = None, width: theme.Width = "page") -> Figure:
    """What is each head like?"""
    asked = chosen_heads(heads_table, heads)
    rows = in_order(heads_table, asked)
    wide = theme.inches(width) >= WIDE_ENOUGH
    names = [_name(head, kind if wide else None) for head, kind in zip(asked, rows["position_class"], strict=True)]
    legend = [point_entry("head", HEAD), point_entry("null: queries exchanged", NULL, filled=False)]
    figure, panels = head_rows(asked, width, [measure.title for measure in MEASURES], names=names, legend=legend)
    for axes, measure in zip(panels, MEASURES, strict=True):
        show_neutral(axes, measure)
        if measure.column == "auroc":
            points(axes, rows["auroc_null"], NULL, filled=False)
        points(axes, rows[measure.column], HEAD)
    return figure


def _name(head: int, position_class: str | None) -> str:
    return f"{position_class}  {head_name(head)}" if position_class else head_name(head)

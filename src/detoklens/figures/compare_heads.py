"""How do heads change over checkpoints? Every number of the head cards, one line a head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from detoklens.figures import theme
from detoklens.figures.head_cards import MEASURES
from detoklens.figures.marks import line, line_entry, numbers, reference
from detoklens.figures.panels import name_places, titled_panels
from detoklens.figures.wording import head_name

OTHERS = theme.Style(theme.INK, "solid", "o", "")


@theme.figure_function
def compare_heads(
    heads_by_label: Mapping[str, pl.DataFrame], *, heads: Sequence[int] | None = None, width: theme.Width = "page"
) -> Figure:
    """How do heads change over checkpoints? `heads` are named in the legend; by default the last one's best six."""
    tables = [table.sort("head") for table in heads_by_label.values()]
    joined = pl.concat([table.with_columns(place=pl.lit(place)) for place, table in enumerate(tables)])
    same = len({tuple(table["head"]) for table in tables}) == 1
    named = _named_heads(tables[-1], heads) if same else {}
    figure, panels = titled_panels(
        [measure.title.replace("\n", " ") for measure in MEASURES],
        width,
        x_label="checkpoint",
        y_label="",
        legend=[line_entry(head_name(head), style) for head, style in named.items()],
        tick_names=list(heads_by_label),
    )
    for axes, measure in zip(panels, MEASURES, strict=True):
        if measure.neutral is not None:
            reference(axes, y=measure.neutral)
        _draw_measure(axes, joined, measure.column, named, same)
    name_places(panels, list(heads_by_label))
    return figure


def _named_heads(last: pl.DataFrame, heads: Sequence[int] | None) -> dict[int, theme.Style]:
    best = last.sort("auroc", "self_match", descending=True, nulls_last=True)["head"].to_list()
    chosen = list(heads) if heads is not None else sorted(best[: len(theme.SERIES)])
    return {head: theme.style_of(place) for place, head in enumerate(chosen)}


def _draw_measure(axes: Axes, rows: pl.DataFrame, column: str, named: Mapping[int, theme.Style], same: bool) -> None:
    if not same:
        known = rows.drop_nulls(column)
        if known.height:
            axes.plot(
                numbers(known["place"]), numbers(known[column]), "o", color=theme.SERIES[0].colour, alpha=theme.SOFT
            )
        return
    for head in rows["head"].unique().sort():
        values = rows.filter(head=head).sort("place")
        look = {} if head in named else {"alpha": theme.FAINT * 2, "linewidth": 0.6}
        line(axes, values["place"], values[column], named.get(head, OTHERS), **look)

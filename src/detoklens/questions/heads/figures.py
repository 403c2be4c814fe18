"""Head cards of one checkpoint, and of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from detoklens import demo
from detoklens.figures import theme
from detoklens.figures.marks import line, line_entry, numbers, point_entry, reference
from detoklens.figures.panels import (
    Measure,
    auroc_range,
    chosen_heads,
    head_rows,
    in_order,
    name_places,
    points,
    show_neutral,
    titled_panels,
)
from detoklens.wording import head_name

MEASURES = (
    Measure("auroc", "AUROC\n(bigrams)", 0.5),
    Measure("margin", "AUROC −\ncontrol", 0.0),
    Measure("lookback", "lookback\nC − W", 0.0),
    Measure("word_share", "rank share\nin words", 0.5),
    Measure("rank_lost", "rank lost\nif ablated", 0.0),
    Measure("sd", "sd of score\n(nats)"),
    Measure("offset", "offset\nshare"),
    Measure("query_key", "query × key\nshare"),
    Measure("self_match", "self-match\n(z of Tᵉᵉ)", 0.0),
    Measure("frequency_spearman", "ρ of Tᵉ with\nfrequency", 0.0),
)
COMPARED = (
    Measure("margin", "AUROC − strongest control", 0.0),
    Measure("lookback", "lookback C − W (nats)", 0.0),
    Measure("sd", "sd of the score (nats)"),
    Measure("offset", "offset share"),
    Measure("key", "key share"),
    Measure("query_offset", "query × offset share"),
    Measure("query_key", "query × key share"),
    *(measure for measure in MEASURES if measure.column in ("auroc", "word_share", "rank_lost", "self_match")),
    Measure("frequency_spearman", "ρ of Tᵉ with frequency", 0.0),
)
MILLION = 1_000_000
WIDE_ENOUGH = 5.0  # inches; wider figures also show the position class
HEAD, NULL = theme.SERIES[0], theme.SERIES[1]
OTHERS = theme.Style(theme.INK, "solid", "o", "")


def head_cards(heads_table: pl.DataFrame, *, heads: Sequence[int] | None = None, width: theme.Width = "page") -> Figure:
    """Draw one row per head, one panel per measure."""
    asked = chosen_heads(heads_table, heads)
    rows = in_order(heads_table, asked)
    wide = theme.inches(width) >= WIDE_ENOUGH
    kinds = rows["position_class"] if wide else [None] * len(asked)
    names = [f"{kind}  {head_name(head)}" if kind else head_name(head) for head, kind in zip(asked, kinds, strict=True)]
    measures = [measure for measure in MEASURES if rows[measure.column].null_count() < len(rows)] or MEASURES
    legend = [point_entry("head", HEAD)]
    if measures[0].column == "auroc":
        legend.append(point_entry("larger plain null", NULL, filled=False))
    figure, panels = head_rows(asked, width, [measure.title for measure in measures], names=names, legend=legend)
    for axes, measure in zip(panels, measures, strict=True):
        show_neutral(axes, measure)
        if measure.column == "auroc":
            points(axes, rows["auroc_null"], NULL, filled=False)
            auroc_range([axes])
        points(axes, rows[measure.column], HEAD)
    return figure


def compare_heads(
    heads_by_label: Mapping[str, pl.DataFrame], *, heads: Sequence[int] | None = None, width: theme.Width = "page"
) -> Figure:
    """Draw each measure by checkpoint, or by training tokens where all checkpoints are the demo's snapshots.

    `heads` are named in the legend; by default the last checkpoint's best six.
    """
    tokens = [demo.training_tokens(label) for label in heads_by_label]
    by_tokens = None not in tokens
    places = [each / MILLION for each in tokens if each is not None] if by_tokens else list(range(len(tokens)))
    tables = [table.sort("head") for table in heads_by_label.values()]
    joined = pl.concat([each.with_columns(place=pl.lit(float(x))) for x, each in zip(places, tables, strict=True)])
    same = len({tuple(table["head"]) for table in tables}) == 1
    named: dict[int, theme.Style] = {}
    if same:
        best = tables[-1].sort("auroc", "self_match", descending=True, nulls_last=True)["head"].to_list()
        chosen = list(heads) if heads is not None else sorted(best[: len(theme.SERIES)])
        named = {head: theme.style_of(place) for place, head in enumerate(chosen)}
    measures = [measure for measure in COMPARED if joined[measure.column].count()]
    figure, panels = titled_panels(
        [measure.title.replace("\n", " ") for measure in measures],
        width,
        x_label="million training tokens" if by_tokens else "checkpoint",
        y_label="",
        legend=[line_entry(head_name(head), style) for head, style in named.items()],
        tick_names=[] if by_tokens else list(heads_by_label),
    )
    for axes, measure in zip(panels, measures, strict=True):
        if measure.neutral is not None:
            reference(axes, y=measure.neutral)
        _draw_measure(axes, joined, measure.column, named, same)
    if not by_tokens:
        name_places(panels, list(heads_by_label))
    return figure


def _draw_measure(axes: Axes, rows: pl.DataFrame, column: str, named: Mapping[int, theme.Style], same: bool) -> None:
    if not same:
        known = rows.drop_nulls(column)
        if known.height:
            axes.plot(
                numbers(known["place"]), numbers(known[column]), "o", color=theme.SERIES[0].colour, alpha=theme.SOFT
            )
        return
    for head in rows["head"].unique().sort():
        values, style = rows.filter(head=head).sort("place"), named.get(head, OTHERS)
        look = {} if head in named else {"alpha": theme.BESIDE, "linewidth": 0.6}
        line(axes, values["place"], values[column], style, marker=style.marker, **look)

"""Rank of a word's twin by condition, by number of pieces, and over checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from detoklens.figures import theme
from detoklens.figures.marks import line, line_entry, numbers, point_entry, ratio_scale, reference
from detoklens.figures.panels import head_rows, intervals, name_places, points, titled_panels
from detoklens.wording import term_symbol

PLACES = {"attention": "after the attention", "block": "after the block"}
KINDS = {
    "whole": ("unchanged", theme.SERIES[0]),
    "null": ("another word's first piece", theme.SERIES[1]),
    "last_piece": ("the last piece alone", theme.SERIES[2]),
    "first_piece": ("the first piece alone", theme.SERIES[3]),
    "additive": ("the sum of its pieces", theme.SERIES[4]),
    "cut": ("a head's attention cut", theme.SERIES[5]),
    "without": ("a term left out", theme.Style(theme.INK, "solid", "<", "")),
    "only": ("a term alone", theme.Style(theme.INK, "solid", ">", "")),
}
CONTROLS = ("null", "last_piece", "first_piece", "additive")
BASES = ("whole", *CONTROLS)
MEASURES = {"median_rank": "median rank of the twin", "rank_ratio": "rank ÷ unchanged rank"}
BRIEFLY = {"median_rank": "median rank", "rank_ratio": "times worse"}
NARROW = 5.0  # inches
APART = 0.05  # of a step, between the intervals of two lines
MOST_HEADS = len(theme.SERIES)


def twins(twins_by_condition: pl.DataFrame, *, width: theme.Width = "page") -> Figure:
    """Median rank of the twin in each condition, and its rank ratio."""
    rows = _shortest(twins_by_condition)
    places = _places(rows)
    shown = [(place, "median_rank") for place in places] + [(place, "rank_ratio") for place in places[-1:]]
    names = [_name(condition) for condition in dict.fromkeys(rows["condition"])]
    legend = [point_entry(label, style) for label, style in KINDS.values()]
    measures, where = (
        (MEASURES, PLACES) if theme.inches(width) >= NARROW else (BRIEFLY, {name: name for name in PLACES})
    )
    titles = [f"{measures[column]},\n{where[place]}" for place, column in shown]
    figure, panels = head_rows(list(range(len(names))), width, titles, names=names, legend=legend)
    for axes, (place, column) in zip(panels, shown, strict=True):
        found = rows.filter(place=place)
        _draw_conditions(axes, found, column)
        ratio_scale(axes, axes.xaxis, [found[name] for name in _with_ends(column)])
    return figure


def _draw_conditions(axes: Axes, rows: pl.DataFrame, column: str) -> None:
    for value in rows.filter(condition="whole")[column].drop_nulls():
        reference(axes, x=value)
    ends = _with_ends(column)
    for kind, (_, style) in KINDS.items():
        is_kind = pl.col("condition").str.starts_with(kind)
        values = rows.with_columns(pl.when(is_kind).then(pl.col(name)).alias(name) for name in ends)
        intervals(axes, values[ends[1]], values[ends[2]], style)
        points(axes, values[column], style)


def _with_ends(column: str) -> tuple[str, str, str]:
    return column, f"{column}_low", f"{column}_high"


def _shortest(table: pl.DataFrame) -> pl.DataFrame:
    return table.filter(pl.col("pieces") == pl.col("pieces").min())


def _places(table: pl.DataFrame) -> list[str]:
    return [place for place in PLACES if place in table["place"]]


def _name(condition: str) -> str:
    """`cut L0H1`, `without Tᵉᵉ`, `last piece`."""
    kind, _, what = condition.partition("_")
    return f"{kind} {term_symbol(what)}" if kind in ("without", "only") else condition.replace("_", " ")


def twins_pieces(twins_by_condition: pl.DataFrame, *, width: theme.Width = "page") -> Figure:
    """Median rank of the twin by number of pieces."""
    places = _places(twins_by_condition)
    counts = sorted(set(twins_by_condition["pieces"]))
    figure, panels = titled_panels(
        [PLACES[place] for place in places],
        width,
        x_label="pieces",
        y_label="median rank of the twin",
        legend=[line_entry(*KINDS[name], marker=True) for name in BASES],
    )
    for axes, place in zip(panels, places, strict=True):
        for turn, name in enumerate(BASES):
            rows = twins_by_condition.filter(place=place, condition=name).sort("pieces")
            at = rows["pieces"].cast(pl.Float64) + (turn - len(BASES) // 2) * APART
            _line_with_intervals(axes, at, rows, "median_rank", KINDS[name][1])
        drawn = twins_by_condition.filter(pl.col("condition").is_in(BASES), place=place)
        ratio_scale(axes, axes.yaxis, [drawn[name] for name in _with_ends("median_rank")])
        axes.set_xticks(counts, [str(pieces) for pieces in counts])
        axes.set_xlim(counts[0] - 0.3, counts[-1] + 0.3)
    return figure


def _line_with_intervals(axes: Axes, at: pl.Series, rows: pl.DataFrame, column: str, style: theme.Style) -> None:
    line(axes, at, rows[column], style, marker=style.marker)
    low, high = rows[f"{column}_low"], rows[f"{column}_high"]
    if not (low.drop_nulls().is_empty() or high.drop_nulls().is_empty()):
        axes.vlines(numbers(at), numbers(low), numbers(high), color=style.colour, linewidth=1.2)


def compare_twins(
    by_label: Mapping[str, pl.DataFrame], *, heads: Sequence[int] | None = None, width: theme.Width = "page"
) -> Figure:
    """Rank ratios of the controls over checkpoints, and of the cuts that cost the last checkpoint most."""
    shared = set.intersection(*(set(_places(table)) for table in by_label.values()))
    last = [place for place in PLACES if place in shared][-1:]
    tables = [_shortest(table).filter(pl.col("place").is_in(last)) for table in by_label.values()]
    joined = pl.concat([table.with_columns(at=pl.lit(float(at))) for at, table in enumerate(tables)])
    cuts = _cuts(tables[-1], heads)
    controls = {
        name: theme.Style(theme.INK, style.line, style.marker, "")
        for name, style in ((name, KINDS[name][1]) for name in CONTROLS)
    }
    figure, panels = titled_panels(
        ["controls", "a head's attention cut"],
        width,
        x_label="checkpoint",
        y_label="times worse",
        legend=[
            *(line_entry(KINDS[name][0], style, marker=True) for name, style in controls.items()),
            *(line_entry(_name(cut), theme.style_of(place), marker=True) for place, cut in enumerate(cuts)),
        ],
        share_y=True,
        tick_names=list(by_label),
    )
    styles = {cut: theme.style_of(place) for place, cut in enumerate(cuts)}
    for axes, drawn in zip(panels, (controls, styles), strict=True):
        reference(axes, y=1.0)
        for name, style in drawn.items():
            rows = joined.filter(condition=name)
            _line_with_intervals(axes, rows["at"], rows, "rank_ratio", style)
    name_places(panels, list(by_label))
    return figure


def _cuts(last: pl.DataFrame, heads: Sequence[int] | None) -> list[str]:
    """The cuts of the given heads; by default of those that the last checkpoint needs most."""
    if heads is not None:
        return [f"cut_L0H{head}" for head in heads]
    cuts = last.filter(pl.col("condition").str.starts_with("cut_"))
    worst = cuts.sort("rank_ratio", descending=True, nulls_last=True)["condition"].head(MOST_HEADS).to_list()
    return [name for name in cuts["condition"] if name in worst]

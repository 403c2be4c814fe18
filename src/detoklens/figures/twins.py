"""Does the layer write the word? The twin's rank by condition, by number of pieces, and over checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from detoklens.figures import theme
from detoklens.figures.head_rows import head_rows, intervals, points
from detoklens.figures.marks import line, line_entry, numbers, point_entry, reference
from detoklens.figures.panels import name_places, titled_panels
from detoklens.wording import term_symbol

PLACES = {"attention": "after the attention", "block": "after the block"}
KINDS = {
    "whole": ("as it is", theme.SERIES[0]),
    "null": ("another word's first piece", theme.SERIES[1]),
    "last_piece": ("the last piece alone", theme.SERIES[2]),
    "cut": ("a head's look back cut", theme.SERIES[3]),
    "without": ("a term left out", theme.SERIES[4]),
    "only": ("a term alone", theme.SERIES[5]),
}
BASES = ("whole", "null", "last_piece")
RANK = ("median_rank", "median_rank_low", "median_rank_high")
MOST_HEADS = len(theme.SERIES)


@theme.figure_function
def twins(twins_by_condition: pl.DataFrame, *, width: theme.Width = "page") -> Figure:
    """At which rank does the twin stand in each condition?"""
    rows = _shortest(twins_by_condition)
    conditions = list(dict.fromkeys(rows["condition"]))
    titles = [f"median rank of the twin,\n{PLACES[place]}" for place in _places(rows)]
    legend = [point_entry(label, style) for label, style in KINDS.values()]
    names = [_name(condition) for condition in conditions]
    figure, panels = head_rows(list(range(len(names))), width, titles, names=names, legend=legend)
    for axes, place in zip(panels, _places(rows), strict=True):
        here = rows.filter(place=place)
        for value in here.filter(condition="whole")["median_rank"].drop_nulls():
            reference(axes, x=value)
        for kind, (_, style) in KINDS.items():
            of_kind = here.with_columns(
                pl.when(pl.col("condition").str.starts_with(kind)).then(pl.col(name)).alias(name) for name in RANK
            )
            intervals(axes, of_kind[RANK[1]], of_kind[RANK[2]], style)
            points(axes, of_kind[RANK[0]], style)
    return figure


def _shortest(table: pl.DataFrame) -> pl.DataFrame:
    """The words of the fewest pieces."""
    return table.filter(pl.col("pieces") == pl.col("pieces").min())


def _places(table: pl.DataFrame) -> list[str]:
    return [place for place in PLACES if place in table["place"]]


def _name(condition: str) -> str:
    """`cut L0H1`, `without Tᵉᵉ`, `last piece`."""
    kind, _, what = condition.partition("_")
    return f"{kind} {term_symbol(what)}" if kind in ("without", "only") else condition.replace("_", " ")


@theme.figure_function
def twins_pieces(twins_by_condition: pl.DataFrame, *, width: theme.Width = "page") -> Figure:
    """Does the last piece still find the word when the word has more pieces?"""
    places = _places(twins_by_condition)
    counts = sorted(set(twins_by_condition["pieces"]))
    figure, panels = titled_panels(
        [PLACES[place] for place in places],
        width,
        x_label="pieces",
        y_label="median rank of the twin",
        legend=[line_entry(KINDS[name][0], KINDS[name][1], marker=True) for name in BASES],
        tick_names=["4"],
    )
    for axes, place in zip(panels, places, strict=True):
        for name in BASES:
            rows = twins_by_condition.filter(place=place, condition=name).sort("pieces")
            at = pl.Series([counts.index(pieces) for pieces in rows["pieces"]], dtype=pl.Float64)
            _line_with_intervals(axes, at, rows, "median_rank", KINDS[name][1])
    name_places(panels, [str(pieces) for pieces in counts])
    return figure


def _line_with_intervals(axes: Axes, at: pl.Series, rows: pl.DataFrame, column: str, style: theme.Style) -> None:
    line(axes, at, rows[column], style, marker=style.marker)
    low, high = rows[f"{column}_low"], rows[f"{column}_high"]
    if not (low.drop_nulls().is_empty() or high.drop_nulls().is_empty()):
        axes.vlines(numbers(at), numbers(low), numbers(high), color=style.colour, linewidth=1.2)


@theme.figure_function
def compare_twins(
    by_label: Mapping[str, pl.DataFrame], *, heads: Sequence[int] | None = None, width: theme.Width = "page"
) -> Figure:
    """When does a model begin to write words? By default the cuts that cost the last checkpoint most are shown."""
    tables = [_last_place(_shortest(table)) for table in by_label.values()]
    joined = pl.concat([table.with_columns(at=pl.lit(float(at))) for at, table in enumerate(tables)])
    cuts = _cuts(tables[-1], heads)
    figure, panels = titled_panels(
        ["null and baseline", "a head's look back cut"],
        width,
        x_label="checkpoint",
        y_label="times worse",
        legend=[
            *(line_entry(KINDS[name][0], KINDS[name][1], marker=True) for name in BASES[1:]),
            *(line_entry(_name(cut), theme.style_of(place), marker=True) for place, cut in enumerate(cuts)),
        ],
        share_y=True,
        tick_names=list(by_label),
    )
    for axes, names in zip(panels, (BASES[1:], cuts), strict=True):
        reference(axes, y=1.0)
        for place, name in enumerate(names):
            rows = joined.filter(condition=name)
            style = KINDS[name][1] if name in KINDS else theme.style_of(place)
            _line_with_intervals(axes, rows["at"], rows, "rank_ratio", style)
    name_places(panels, list(by_label))
    return figure


def _last_place(table: pl.DataFrame) -> pl.DataFrame:
    return table.filter(place=_places(table)[-1]) if len(table) else table


def _cuts(last: pl.DataFrame, heads: Sequence[int] | None) -> list[str]:
    """The conditions of the asked heads; else of those that the last checkpoint needs most, in their order."""
    if heads is not None:
        return [f"cut_L0H{head}" for head in heads]
    cuts = last.filter(pl.col("condition").str.starts_with("cut_"))
    worst = cuts.sort("rank_ratio", descending=True, nulls_last=True)["condition"].head(MOST_HEADS).to_list()
    return [name for name in cuts["condition"] if name in worst]

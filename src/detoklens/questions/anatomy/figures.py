"""What makes the score of each head vary? Stacked bars with the heads' strength, and a map of heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from detoklens.figures import theme
from detoklens.figures.labels import token_label
from detoklens.figures.marks import numbers, patch_entry, point_entry
from detoklens.figures.panels import LONGEST_NAME, chosen_heads, head_rows, in_order, points, stacked, titled_panels
from detoklens.questions.anatomy.question import SHARE_NAMES
from detoklens.wording import head_name

LARGEST_AREA = 160  # square points of the strongest head in a map of heads
MIDDLE = 0.5  # a label is on the side of its point that has more space
STRENGTH, LEXICAL = theme.Style(theme.INK, "solid", "o", ""), theme.SERIES[4]


def anatomy(
    anatomy_by_head: pl.DataFrame, *, heads: Sequence[int] | None = None, width: theme.Width = "page"
) -> Figure:
    """What makes the score of each head vary?"""
    asked = chosen_heads(anatomy_by_head, heads)
    rows = in_order(anatomy_by_head, asked)
    styles = [theme.style_of(place) for place in range(len(SHARE_NAMES))]
    legend = [patch_entry(name, style) for name, style in zip(SHARE_NAMES.values(), styles, strict=True)]
    legend += [point_entry("score", STRENGTH), point_entry("token pair at offset 1", LEXICAL, filled=False)]
    figure, (shares, strength) = head_rows(
        asked, width, ["share of score variance", "sd of the score (nats)"], legend=legend
    )
    stacked(shares, [rows[column] for column in SHARE_NAMES], styles, shift=0.0, height=0.7)
    shares.set_xlim(0, 1)
    points(strength, rows["sd"], STRENGTH)
    points(strength, rows["lexical_sd"], LEXICAL, filled=False)
    strength.set_xlim(left=0)
    return figure


def head_map(
    anatomy_by_head: pl.DataFrame, *, heads: Sequence[int] | None = None, width: theme.Width = "page"
) -> Figure:
    """One point per head: offset share, query × key share, and strength as its area."""
    return _maps({"": in_order(anatomy_by_head, chosen_heads(anatomy_by_head, heads))}, width)


def compare_head_maps(
    anatomy_by_label: Mapping[str, pl.DataFrame], *, heads: Sequence[int] | None = None, width: theme.Width = "page"
) -> Figure:
    """A map of heads for each checkpoint, with the same axes and areas."""
    return _maps({label: in_order(each, chosen_heads(each, heads)) for label, each in anatomy_by_label.items()}, width)


def _maps(by_label: Mapping[str, pl.DataFrame], width: theme.Width) -> Figure:
    strongest = max((value for rows in by_label.values() for value in rows["sd"].drop_nulls()), default=0.0) or 1.0
    titles = [label and token_label(label, LONGEST_NAME, space=" ") for label in by_label]
    figure, panels = titled_panels(
        titles,
        width,
        x_label="offset share",
        y_label="query × key share",
        share_y=True,
        proportion=0.62 if len(titles) == 1 else 0.9,
    )
    for axes, rows in zip(panels, by_label.values(), strict=True):
        known = rows.drop_nulls(["offset", "query_key", "sd"])
        if known.is_empty():
            continue
        area = LARGEST_AREA * numbers(known["sd"]) / strongest
        axes.scatter(
            numbers(known["offset"]), numbers(known["query_key"]), s=area, color=theme.SERIES[0].colour,
            alpha=theme.SOFT, edgecolors=theme.INK, linewidths=0.4,
        )  # fmt: skip
        for head, x, y in known.sort("sd", descending=True).select("head", "offset", "query_key").iter_rows():
            right, low = x > MIDDLE, y < MIDDLE
            place: dict[str, Any] = {"ha": "right" if right else "left", "va": "bottom" if low else "top"}
            place["xytext"] = (-3 if right else 3, 2 if low else -2)
            axes.annotate(head_name(head), (x, y), textcoords="offset points", fontsize=theme.SMALL_SIZE, **place)
        axes.set_xlim(-0.05, 1.05)
        axes.set_ylim(-0.05, 1.05)
        _drop_crowded(axes)
    return figure


def _drop_crowded(axes: Axes) -> None:
    """Remove labels that overlap an earlier one or leave the panel."""
    renderer = FigureCanvasAgg(axes.figure).get_renderer()  # type: ignore[arg-type, no-untyped-call]
    kept: list[Bbox] = []
    for text in list(axes.texts):
        box = text.get_window_extent(renderer)
        inside = axes.bbox.x0 <= box.x0 and box.x1 <= axes.bbox.x1 and axes.bbox.y0 <= box.y0 and box.y1 <= axes.bbox.y1
        if inside and not any(box.overlaps(other) for other in kept):
            kept.append(box)
        else:
            text.remove()

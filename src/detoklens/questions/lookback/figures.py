"""Looking back by class of query token: parts of the lift, C − W by term, and the gap in attention on text."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from detoklens.figures import theme
from detoklens.figures.marks import band_entry, patch_entry, point_entry, reference
from detoklens.figures.panels import TALLEST, chosen_heads, head_rows, in_order, points, stacked
from detoklens.questions.lookback.compute import CLASSES, PARTS
from detoklens.wording import term_symbol

WHOLE = theme.Style(theme.INK, "solid", "o", "")
NULL = theme.Style(theme.INK, "solid", "", "")
BAR = 0.24  # height of a bar as a share of a row
ROW, SMALLEST_ROW = 0.62, 0.28  # height of a row in inches: usual, and with many heads


@theme.figure_function
def lookback(
    by_head: pl.DataFrame,
    by_term: pl.DataFrame,
    text: pl.DataFrame | None = None,
    *,
    heads: Sequence[int] | None = None,
    width: theme.Width = "page",
) -> Figure:
    """One row per head: the lift by part and class, C − W by term, and the gap in attention without each term."""
    asked = chosen_heads(by_head, heads)
    by_head, by_term = by_head.filter(contrast="previous"), by_term.filter(part="total")
    terms = {term: theme.style_of(place) for place, term in enumerate(by_term["term"].unique(maintain_order=True))}
    legend = [patch_entry(part, theme.style_of(place)) for place, part in enumerate(PARTS)]
    legend += [point_entry("whole", WHOLE), *(point_entry(term_symbol(term), style) for term, style in terms.items())]
    legend.append(band_entry("permuted labels", NULL))
    titles = ["lift from C, W, F\n(nats, top to bottom)", "C − W by term\n(nats)"]
    titles += ["C − W of attention\nwithout the term"] if text is not None else []
    figure, panels = head_rows(
        asked, width, titles, legend=legend, row=max(SMALLEST_ROW, min(ROW, TALLEST / max(1, len(asked))))
    )
    for place, label in enumerate(CLASSES):
        parts = [in_order(by_head.filter(part=part), asked)[label] for part in PARTS]
        stacked(panels[0], parts, [theme.style_of(number) for number in range(len(PARTS))], (place - 1) * 0.27, BAR)
    totals = in_order(by_head.filter(part="total"), asked)
    for place, (low, high) in enumerate(totals.select("null_low", "null_high").iter_rows()):
        if low is not None:
            panels[1].fill_betweenx([place - 0.45, place + 0.45], low, high, color=theme.INK, alpha=0.22, linewidth=0)
    differences = [in_order(by_term.filter(term=term), asked)["difference"] for term in terms]
    _rows_of_points(panels[1], totals["difference"], differences, list(terms.values()))
    if text is not None:
        gaps = {removed: in_order(text.filter(removed=removed), asked)["gap"] for removed in ("none", *terms)}
        _rows_of_points(panels[2], gaps.pop("none"), list(gaps.values()), list(terms.values()))
    for axes in panels:
        reference(axes, x=0)
    return figure


def _rows_of_points(axes: Axes, whole: pl.Series, by_term: Sequence[pl.Series], styles: Sequence[theme.Style]) -> None:
    """The whole on top of each row, the terms below it."""
    step = 0.8 / max(1, len(by_term))
    points(axes, whole, WHOLE, shift=-0.4)
    for number, (values, style) in enumerate(zip(by_term, styles, strict=True), 1):
        points(axes, values, style, shift=-0.4 + number * step)

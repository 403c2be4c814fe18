"""Looking back by class of query token: parts of the lift, C − W by term, and attention on text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from detoklens.figures import theme
from detoklens.figures.marks import band_entry, patch_entry, point_entry, reference
from detoklens.figures.panels import TALLEST, chosen_heads, head_rows, in_order, intervals, points, stacked
from detoklens.questions.lookback.compute import CLASSES, PARTS
from detoklens.wording import term_symbol

ALL_TERMS = theme.Style(theme.INK, "solid", "o", "")
NULL = theme.Style(theme.INK, "solid", "", "")
MARKERS = dict(zip(CLASSES, ("o", "s", "^"), strict=True))
LETTER = 0.16  # inches for the class of a bar
BAR = 0.24  # height of a bar, as a share of the row
ROW, SMALLEST_ROW = 0.8, 0.28  # usual and smallest height of a row, in inches


def lookback(
    by_head: pl.DataFrame,
    by_term: pl.DataFrame,
    text: pl.DataFrame | None = None,
    *,
    heads: Sequence[int] | None = None,
    width: theme.Width = "page",
) -> Figure:
    """One row per head: the lift by part and class, C − W by term, and attention by class without each term."""
    asked = chosen_heads(by_head, heads)
    by_head, by_term = by_head.filter(contrast="previous"), by_term.filter(part="total")
    names = by_term["term"].unique(maintain_order=True).to_list()
    styles = {"none": ALL_TERMS} | {term: theme.style_of(place) for place, term in enumerate(names)}
    shifts = {term: -0.4 + 0.8 * place / max(1, len(names)) for place, term in enumerate(styles)}
    legend = [patch_entry(part, theme.style_of(place)) for place, part in enumerate(PARTS)]
    legend += [point_entry("all terms", ALL_TERMS), *(point_entry(term_symbol(term), styles[term]) for term in names)]
    legend.append(band_entry("permuted labels", NULL))
    row = max(SMALLEST_ROW, min(ROW, TALLEST / max(1, len(asked))))
    is_lettered = row * BAR * 72 >= theme.SMALL_SIZE
    titles = [f"lift from C, W, F\n(nats{'' if is_lettered else ', top to bottom'})", "C − W by term\n(nats)"]
    if text is not None:
        titles.append("attention, all terms\nor one removed")
        classes = [(f"from {label}", replace(ALL_TERMS, marker=marker)) for label, marker in MARKERS.items()]
        legend += [point_entry(name, style, filled=name == "from C") for name, style in classes]
    figure, panels = head_rows(asked, width, titles, legend=legend, row=row, gap=LETTER if is_lettered else 0.0)
    for place, label in enumerate(CLASSES):
        parts = [in_order(by_head.filter(part=part), asked)[label] for part in PARTS]
        shift = (place - 1) * 0.27
        stacked(panels[0], parts, [theme.style_of(number) for number in range(len(PARTS))], shift, BAR)
        for number in range(len(asked) if is_lettered else 0):
            _letter(panels[0], number + shift, label)
    totals = in_order(by_head.filter(part="total"), asked)
    for place, (low, high) in enumerate(totals.select("null_low", "null_high").iter_rows()):
        if low is not None:
            panels[1].fill_betweenx([place - 0.45, place + 0.45], low, high, color=theme.INK, alpha=0.22, linewidth=0)
    for term, style in styles.items():
        rows = totals if term == "none" else in_order(by_term.filter(term=term), asked)
        points(panels[1], rows["difference"], style, shift=shifts[term])
        intervals(panels[1], rows["low"], rows["high"], style, shift=shifts[term])
    for removed, style in styles.items():
        if text is None:
            break
        rows = in_order(text.filter(removed=removed), asked)
        for label, marker in MARKERS.items():
            name = f"attention_{label}"
            intervals(panels[2], rows[f"{name}_low"], rows[f"{name}_high"], style, shift=shifts[removed])
            points(panels[2], rows[name], replace(style, marker=marker), filled=label == "C", shift=shifts[removed])
    for axes in panels:
        reference(axes, x=0)
    return figure


def _letter(axes: Axes, place: float, label: str) -> None:
    """The class of a bar, between the name of its head and the axis."""
    look: dict[str, Any] = {"ha": "right", "va": "center", "fontsize": theme.SMALL_SIZE}
    axes.text(-0.012, place, label, transform=axes.get_yaxis_transform(), **look)

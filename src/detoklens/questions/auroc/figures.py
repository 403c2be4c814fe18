"""AUROC and precision by head, ROC curves, and AUROC of several checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from detoklens.figures import theme
from detoklens.figures.labels import number, token_label, token_name
from detoklens.figures.marks import line, line_entry, numbers, point_entry, reference
from detoklens.figures.panels import (
    ROW,
    auroc_range,
    chosen_heads,
    head_rows,
    in_order,
    intervals,
    points,
    titled_panels,
)
from detoklens.wording import head_name

HEAD, CHANCE = theme.SERIES[0], theme.SERIES[1]
CONTROLS = {
    "shuffled_queries": ("null: queries exchanged", theme.SERIES[1]),
    "within_group": ("null: queries exchanged within class or cluster", theme.SERIES[4]),
    "permuted_keys": ("null: keys permuted", theme.SERIES[2]),
    "frequency": ("frequency alone", theme.SERIES[3]),
}
WITHIN_GROUP = pl.col("auroc") - pl.min_horizontal("above_within_class", "above_within_cluster")
"""Below the AUROC by the margin: the null itself is a mean over fewer query tokens and can't be compared with it."""
MEASURES = {
    "seen": "mean AUROC over query tokens",
    "all": "mean AUROC over all query tokens, undefined as 0",
    "weighted": "mean AUROC over query tokens, weighted by their bigrams",
}
AMONG_EQUALS = "the same among equally frequent keys"
BRIEF = ("mean AUROC", "equally frequent keys")  # titles in a narrow figure
NARROW = 5.0  # inches
WITH_NAMES = 1.4  # inches; wider panels name the tokens of their areas
NULL = theme.Style(theme.INK, "solid", "o", "")
MOST_TOKENS = len(theme.SERIES)
LONGEST_LABEL = 40


def auroc(
    auroc_by_head: pl.DataFrame,
    auroc_controls: pl.DataFrame | None = None,
    *,
    heads: Sequence[int] | None = None,
    measure: str = "seen",
    layer: int = 0,
    width: theme.Width = "page",
) -> Figure:
    """Draw each head's mean AUROC (`seen`, `all` or `weighted`) with its nulls and the frequency baseline."""
    asked = chosen_heads(auroc_by_head, heads)
    legend: list[Artist] = [point_entry("AUROC and its 95 % interval", HEAD)]
    titles = [_title(auroc_by_head, measure)]
    if auroc_controls is not None:
        legend += [point_entry(label, style, filled=False) for label, style in CONTROLS.values()]
        if _has_matched(auroc_controls):
            titles = [*titles, AMONG_EQUALS] if theme.inches(width) >= NARROW else list(BRIEF)
    figure, panels = head_rows(asked, width, titles, legend=legend, names=_names(asked, layer))
    if auroc_controls is not None:
        controls = in_order(auroc_controls, asked).with_columns(within_group=WITHIN_GROUP)
        for column, (_, style) in CONTROLS.items():
            points(panels[0], controls[column], style, filled=False)
        for axes in panels[1:]:
            _draw_matched(axes, controls)
    _draw_with_interval(panels[0], in_order(auroc_by_head, asked), measure, HEAD)
    for axes in panels:
        reference(axes, x=0.5)
    auroc_range(panels)
    return figure


def _names(heads: Sequence[int], layer: int) -> list[str]:
    return [head_name(head, layer) for head in heads]


def _has_matched(controls: pl.DataFrame) -> bool:
    return "matched" in controls.columns and controls["matched"].null_count() < len(controls)


def _draw_matched(axes: Axes, rows: pl.DataFrame) -> None:
    """Draw AUROC among equally frequent keys, where permuted keys give 0.5."""
    for column, control in (("matched_null", "shuffled_queries"), ("matched_frequency", "frequency")):
        points(axes, rows[column], CONTROLS[control][1], filled=False)
    _draw_with_interval(axes, rows, "matched", HEAD)


def _draw_with_interval(axes: Axes, rows: pl.DataFrame, column: str, style: theme.Style, shift: float = 0.0) -> None:
    intervals(axes, rows[f"{column}_low"], rows[f"{column}_high"], style, shift)
    points(axes, rows[column], style, shift=shift)


def _title(auroc_by_head: pl.DataFrame, measure: str) -> str:
    tokens = max(auroc_by_head["tokens" if measure == "all" else "tokens_seen"].to_list(), default=0)
    return MEASURES[measure].replace("query tokens", f"{tokens:,} query tokens")


def precision(
    precision_by_head: pl.DataFrame,
    *,
    heads: Sequence[int] | None = None,
    layer: int = 0,
    width: theme.Width = "page",
) -> Figure:
    """Draw each head's average precision and precision of the top k keys, with those of a constant score."""
    asked = chosen_heads(precision_by_head, heads)
    rows = in_order(precision_by_head, asked)
    k = max(rows["k"].drop_nulls().to_list(), default=0)
    columns = {"average_precision": "average precision", "precision_at_k": f"precision of the top {k} keys"}
    legend = [point_entry("head", HEAD), point_entry("constant score", CHANCE, filled=False)]
    figure, panels = head_rows(asked, width, list(columns.values()), legend=legend, names=_names(asked, layer))
    for axes, column in zip(panels, columns, strict=True):
        points(axes, rows[f"chance_{column}"], CHANCE, filled=False)
        points(axes, rows[column], HEAD)
    return figure


def roc(
    roc_points: pl.DataFrame,
    *,
    heads: Sequence[int] | None = None,
    tokens: Sequence[int] | None = None,
    layer: int = 0,
    width: theme.Width = "page",
) -> Figure:
    """Draw the ROC curves of the given query tokens, or of the first six."""
    named = roc_points.select("token_id", "token").unique(maintain_order=True)
    asked = list(tokens) if tokens is not None else named["token_id"].head(MOST_TOKENS).to_list()
    texts = dict(named.iter_rows())
    labels = [token_name(texts.get(token), token) for token in asked]
    shown = chosen_heads(roc_points, heads)
    figure, panels = titled_panels(
        _names(shown, layer),
        width,
        x_label="other tokens found (false positive rate)",
        y_label="bigrams found (true positive rate)",
        legend=[line_entry(label, theme.style_of(place)) for place, label in enumerate(labels)],
        proportion=1.0,
        share_y=True,
    )
    for head, axes in zip(shown, panels, strict=True):
        axes.plot([0, 1], [0, 1], color=theme.INK, alpha=theme.SOFT, linewidth=0.5, label=theme.REFERENCE)
        rows = roc_points.filter(head=head).sort("false_positive_rate", "true_positive_rate")
        curves = [rows.filter(token_id=token) for token in asked]
        for place, curve in enumerate(curves):
            line(axes, curve["false_positive_rate"], curve["true_positive_rate"], theme.style_of(place))
        _write_areas(axes, labels, curves)
        axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    return figure


def _write_areas(axes: Axes, labels: Sequence[str], curves: Sequence[pl.DataFrame]) -> None:
    """Write each curve's area into the lower right corner, with its token if the panel is wide."""
    wide = axes.bbox.width / axes.figure.dpi >= WITH_NAMES
    for above, place in enumerate(reversed(range(len(curves)))):
        axes.annotate(
            f"{labels[place] if wide else ''} {number(_area(curves[place]))}".strip(),
            (1.0, 0.0),
            xytext=(-3, 5 + above * 7.2),
            xycoords="axes fraction",
            textcoords="offset points",
            ha="right",
            fontsize=theme.SMALL_SIZE,
        )


def _area(curve: pl.DataFrame) -> float | None:
    """The area under a curve, or None without a curve."""
    found, wrong = numbers(curve["true_positive_rate"]), numbers(curve["false_positive_rate"])
    return float(np.trapezoid(found, wrong)) if len(found) > 1 else None


def compare_auroc(
    auroc_by_label: Mapping[str, pl.DataFrame],
    controls_by_label: Mapping[str, pl.DataFrame] | None = None,
    *,
    heads: Sequence[int] | None = None,
    measure: str = "seen",
    layer: int = 0,
    width: theme.Width = "page",
) -> Figure:
    """Draw each head's AUROC by checkpoint; a head that a checkpoint lacks has no marker."""
    found = sorted({head for table in auroc_by_label.values() for head in table["head"]})
    asked = list(heads) if heads is not None else found
    labels = [token_label(label, LONGEST_LABEL, space=" ") for label in auroc_by_label]
    legend = [point_entry(label, theme.style_of(place)) for place, label in enumerate(labels)]
    controls = controls_by_label or {}
    if controls:
        legend.append(point_entry("largest null", NULL, filled=False))
    titles = [MEASURES[measure]]
    if any(map(_has_matched, controls.values())):
        titles = [*titles, AMONG_EQUALS] if theme.inches(width) >= NARROW else list(BRIEF)
    row = max(ROW, 0.06 * len(labels))
    figure, panels = head_rows(asked, width, titles, legend=legend, names=_names(asked, layer), row=row)
    for place, (label, table) in enumerate(auroc_by_label.items()):
        style, shift = theme.style_of(place), (place - (len(labels) - 1) / 2) * 0.7 / len(labels)
        if label in controls:
            _draw_controls(panels, in_order(controls[label], asked), style, shift)
        _draw_with_interval(panels[0], in_order(table, asked), measure, style, shift)
    for axes in panels:
        reference(axes, x=0.5)
    auroc_range(panels)
    return figure


def _draw_controls(panels: Sequence[Axes], rows: pl.DataFrame, style: theme.Style, shift: float) -> None:
    """Draw the largest null (hollow), and AUROC and null among equally frequent keys in the second panel."""
    null = rows.select(pl.max_horizontal(pl.col("auroc") - pl.col("above_null"), WITHIN_GROUP)).to_series()
    points(panels[0], null, style, filled=False, shift=shift)
    for axes in panels[1:]:
        points(axes, rows["matched_null"], style, filled=False, shift=shift)
        _draw_with_interval(axes, rows, "matched", style, shift)

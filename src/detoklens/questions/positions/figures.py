"""Tᵖ, Tᵖᵖ, their sum and its softmax along the keys, for one or several models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
from matplotlib.figure import Figure

from detoklens.figures import theme
from detoklens.figures.labels import KEY_POSITION, OFFSET, band_name, token_label
from detoklens.figures.marks import band, band_entry, line, line_entry
from detoklens.figures.panels import PAIRS_PER_INCH, chosen_heads, drawn_queries, head_panels, middle, titled_panels
from detoklens.wording import head_name, term_name

MEAN, LARGEST, SMALLEST = theme.SERIES[0], theme.SERIES[2], theme.SERIES[1]
LONGEST_LABEL = 40
NAMES = {
    "p": term_name("p"),
    "pp": term_name("pp"),
    "p+pp": "position terms together (Tᵖ + Tᵖᵖ)",
    "attention": "attention by position alone",
}
SCALES = {"key": "of the key", "query": "of the query", "both": "of query and key"}


def position_alone(
    positions: pl.DataFrame,
    *,
    heads: Sequence[int] | None = None,
    layer_norm: bool | None = None,
    band_share: float | None = None,
    width: theme.Width = "page",
) -> Figure:
    """Tᵖ of each key position, with LayerNorm, without (False), or both (None)."""
    asked = chosen_heads(positions, heads)
    both = len(asked) <= PAIRS_PER_INCH * theme.inches(width)
    variants = [layer_norm] if layer_norm is not None else [True, False] if both else [True]
    variants = [variant for variant in variants if _rows_of(positions, "p", variant).height]
    pairs = [(head, variant) for head in asked for variant in variants]
    figure, panels = titled_panels(
        [head_name(head) + ("" if variant else ", no LayerNorm") for head, variant in pairs],
        width,
        x_label=KEY_POSITION,
        y_label=NAMES["p"],
        legend=[line_entry("mean σ", MEAN), band_entry(band_name("tokens", band_share), MEAN)],
        columns=len(variants),
    )
    for (head, variant), axes in zip(pairs, panels, strict=True):
        rows = _rows_of(positions, "p", variant).filter(head=head)
        band(axes, rows["key_position"], rows["low"], rows["high"], MEAN)
        line(axes, rows["key_position"], rows["mean"], MEAN)
    return figure


def position_curves(
    positions: pl.DataFrame,
    *,
    quantity: str = "pp",
    heads: Sequence[int] | None = None,
    queries: Sequence[int] | None = None,
    extremes: str = "key",
    band_share: float | None = None,
    width: theme.Width = "page",
) -> Figure:
    """Tᵖᵖ, Tᵖ + Tᵖᵖ or its softmax along the keys: one row of panels per head, one column per query position.

    With more heads than fit, only the middle query position is drawn.
    """
    rows = _rows_of(positions, quantity)
    asked, drawn = drawn_queries(rows, queries), chosen_heads(rows, heads)
    crowded = len(drawn) > PAIRS_PER_INCH * theme.inches(width)
    if crowded:
        asked = [middle(asked)]
    panels_of = [(head, query) for head in drawn for query in asked]
    legend = [
        line_entry("mean σ", MEAN),
        line_entry(f"largest σ {SCALES[extremes]}", LARGEST),
        line_entry(f"smallest σ {SCALES[extremes]}", SMALLEST),
    ]
    if not rows["low"].drop_nulls().is_empty():
        legend.append(band_entry(band_name("pairs of tokens", band_share), MEAN))
    figure, panels = titled_panels(
        [head_name(head) + ("" if crowded else f", query {query}") for head, query in panels_of],
        width,
        x_label=KEY_POSITION,
        y_label=NAMES[quantity] + (f", query {asked[0]}" if crowded else ""),
        legend=legend,
        columns=len(asked),
        share_x=False,
    )
    for (head, query), axes in zip(panels_of, panels, strict=True):
        curve = rows.filter(head=head, query_position=query)
        band(axes, curve["key_position"], curve["low"], curve["high"], MEAN)
        line(axes, curve["key_position"], curve["at_largest_scale"], LARGEST, linewidth=0.7)
        line(axes, curve["key_position"], curve["at_smallest_scale"], SMALLEST, linewidth=0.7)
        line(axes, curve["key_position"], curve["mean"], MEAN)
    return figure


def kernel(
    positions_by_offset: pl.DataFrame, *, heads: Sequence[int] | None = None, width: theme.Width = "page"
) -> Figure:
    """The position kernel: what the distance from query to key adds to the score of any two tokens."""
    rows = positions_by_offset.filter(quantity="p").sort("head", "offset")
    figure, panels = head_panels(chosen_heads(rows, heads), width, x_label=OFFSET, y_label="position kernel (Tᵖ)")
    for head, axes in panels.items():
        curve = rows.filter(head=head)
        line(axes, curve["offset"], curve["value"], MEAN)
    return figure


def kernel_attention(
    positions_by_offset: pl.DataFrame,
    *,
    heads: Sequence[int] | None = None,
    queries: Sequence[int] | None = None,
    width: theme.Width = "page",
) -> Figure:
    """Attention by distance alone: softmax of the kernel, for each query position."""
    rows = positions_by_offset.filter(quantity="attention").sort("head", "query_position", "offset")
    asked = drawn_queries(rows, queries)
    legend = [line_entry(f"query {query}", theme.style_of(place)) for place, query in enumerate(asked)]
    figure, panels = head_panels(
        chosen_heads(rows, heads), width, x_label=OFFSET, y_label="attention by distance alone", legend=legend
    )
    for head, axes in panels.items():
        for place, query in enumerate(asked):
            curve = rows.filter(head=head, query_position=query)
            line(axes, curve["offset"], curve["value"], theme.style_of(place))
    return figure


def compare_positions(
    positions_by_label: Mapping[str, pl.DataFrame],
    by_offset_by_label: Mapping[str, pl.DataFrame] | None = None,
    *,
    heads: Sequence[int] | None = None,
    quantity: str = "p",
    query: int | None = None,
    width: theme.Width = "page",
) -> Figure:
    """A position term, or attention by position alone from one query position, over checkpoints.

    For rotary and ALiBi positions (the second tables), attention by distance is drawn. The query position is by default
    the largest that all checkpoints have.
    """
    tables = {label: _rows_of(table, quantity) for label, table in positions_by_label.items()}
    if quantity == "attention" and by_offset_by_label is not None:
        key = (pl.col("query_position") - pl.col("offset")).alias("key_position")
        tables |= {
            label: table.filter(quantity="attention").with_columns(key).rename({"value": "mean"}).sort("key_position")
            for label, table in by_offset_by_label.items()
        }
    where = ""
    if quantity != "p":
        shared = set.intersection(*(set(table["query_position"].drop_nulls()) for table in tables.values()))
        asked = query if query is not None else max(shared, default=0)
        tables = {label: table.filter(query_position=asked) for label, table in tables.items()}
        where = f", query {asked}"
    curves = {label: table.select("head", "key_position", "mean") for label, table in tables.items()}
    return _checkpoint_lines(curves, heads, width, KEY_POSITION, NAMES[quantity] + where)


def compare_kernels(
    by_offset_by_label: Mapping[str, pl.DataFrame],
    *,
    heads: Sequence[int] | None = None,
    width: theme.Width = "page",
) -> Figure:
    """The position kernel over checkpoints."""
    curves = {
        label: table.filter(quantity="p").sort("offset").select("head", "offset", "value")
        for label, table in by_offset_by_label.items()
    }
    return _checkpoint_lines(curves, heads, width, OFFSET, "position kernel (Tᵖ)")


def _checkpoint_lines(
    curves: Mapping[str, pl.DataFrame], heads: Sequence[int] | None, width: theme.Width, x_label: str, y_label: str
) -> Figure:
    """One panel per head and one line per checkpoint, from tables of head, place and value."""
    found = sorted({head for table in curves.values() for head in table["head"].unique()})
    labels = [token_label(label, LONGEST_LABEL, space=" ") for label in curves]
    legend = [line_entry(label, theme.style_of(place)) for place, label in enumerate(labels)]
    asked = list(heads) if heads is not None else found
    figure, panels = head_panels(asked, width, x_label=x_label, y_label=y_label, legend=legend)
    for head, axes in panels.items():
        for place, table in enumerate(curves.values()):
            _, x, y = table.filter(head=head).get_columns()
            line(axes, x, y, theme.style_of(place))
    return figure


def _rows_of(positions: pl.DataFrame, quantity: str, layer_norm: bool = True) -> pl.DataFrame:
    return positions.filter(quantity=quantity, layer_norm=layer_norm).sort("head", "query_position", "key_position")

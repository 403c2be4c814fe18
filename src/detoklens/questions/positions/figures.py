"""Tᵖ, Tᵖᵖ, their sum and its softmax along the keys, for one or several models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
from matplotlib.artist import Artist
from matplotlib.figure import Figure

from detoklens.figures import theme
from detoklens.figures.labels import KEY_POSITION, OFFSET, band_name, token_label
from detoklens.figures.marks import band, band_entry, line, line_entry
from detoklens.figures.panels import chosen_heads, chosen_queries, head_panels, middle, titled_panels
from detoklens.wording import head_name, term_name

ANY_QUERY = theme.Style(theme.INK, "solid", "o", "")
MEAN, LARGEST, SMALLEST = theme.SERIES[0], theme.SERIES[2], theme.SERIES[1]
PAIRS_PER_INCH = 2  # heads that still fit with two panels each, with and without LayerNorm
LONGEST_LABEL = 40
NAMES = {
    "p": term_name("p"),
    "pp": term_name("pp"),
    "p+pp": "position terms together (Tᵖ + Tᵖᵖ)",
    "attention": "attention by position alone",
}


@theme.figure_function
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


@theme.figure_function
def position_comparison(
    positions: pl.DataFrame,
    *,
    heads: Sequence[int] | None = None,
    queries: Sequence[int] | None = None,
    band_share: float | None = None,
    width: theme.Width = "page",
) -> Figure:
    """Tᵖᵖ along the keys, for each query position."""
    return _query_curves(positions, "pp", heads, queries, width, band_share)


@theme.figure_function
def position_scales(
    positions: pl.DataFrame,
    *,
    heads: Sequence[int] | None = None,
    query: int | None = None,
    band_share: float | None = None,
    width: theme.Width = "page",
) -> Figure:
    """Tᵖᵖ at the extremes of σ, for one query position (default: the middle one of the table)."""
    asked = query if query is not None else middle(chosen_queries(_rows_of(positions, "pp"), None))
    return _query_curves(positions, "pp", heads, [asked], width, band_share)


@theme.figure_function
def position_sum(
    positions: pl.DataFrame,
    *,
    heads: Sequence[int] | None = None,
    queries: Sequence[int] | None = None,
    band_share: float | None = None,
    width: theme.Width = "page",
) -> Figure:
    """Tᵖ + Tᵖᵖ along the keys."""
    return _query_curves(positions, "p+pp", heads, queries, width, band_share)


@theme.figure_function
def position_attention(
    positions: pl.DataFrame,
    *,
    heads: Sequence[int] | None = None,
    queries: Sequence[int] | None = None,
    width: theme.Width = "page",
) -> Figure:
    """Attention by position alone: softmax of Tᵖ + Tᵖᵖ."""
    return _query_curves(positions, "attention", heads, queries, width)


@theme.figure_function
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


@theme.figure_function
def kernel_attention(
    positions_by_offset: pl.DataFrame,
    *,
    heads: Sequence[int] | None = None,
    queries: Sequence[int] | None = None,
    width: theme.Width = "page",
) -> Figure:
    """Attention by distance alone: softmax of the kernel, for each query position."""
    rows = positions_by_offset.filter(quantity="attention").sort("head", "query_position", "offset")
    asked = chosen_queries(rows, queries)
    legend = [line_entry(f"query {query}", theme.style_of(place)) for place, query in enumerate(asked)]
    figure, panels = head_panels(
        chosen_heads(rows, heads), width, x_label=OFFSET, y_label="attention by distance alone", legend=legend
    )
    for head, axes in panels.items():
        for place, query in enumerate(asked):
            curve = rows.filter(head=head, query_position=query)
            line(axes, curve["offset"], curve["value"], theme.style_of(place))
    return figure


@theme.figure_function
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

    For rotary and ALiBi positions (the second tables), attention by distance is drawn.
    """
    tables = {label: _rows_of(table, quantity) for label, table in positions_by_label.items()}
    if quantity == "attention" and by_offset_by_label is not None:
        tables |= {label: _along_keys(table) for label, table in by_offset_by_label.items()}
    asked = _shared_query(list(tables.values()), query) if quantity != "p" else None
    found = sorted({head for table in tables.values() for head in table["head"].unique()})
    labels = [token_label(label, LONGEST_LABEL, space=" ") for label in tables]
    where = "" if asked is None else f", query {asked}"
    figure, panels = head_panels(
        list(heads) if heads is not None else found,
        width,
        x_label=KEY_POSITION,
        y_label=NAMES[quantity] + where,
        legend=[line_entry(label, theme.style_of(place)) for place, label in enumerate(labels)],
    )
    for head, axes in panels.items():
        for place, table in enumerate(tables.values()):
            curve = table.filter(head=head)
            curve = curve if asked is None else curve.filter(query_position=asked)
            line(axes, curve["key_position"], curve["mean"], theme.style_of(place))
    return figure


@theme.figure_function
def compare_kernels(
    by_offset_by_label: Mapping[str, pl.DataFrame],
    *,
    heads: Sequence[int] | None = None,
    width: theme.Width = "page",
) -> Figure:
    """The position kernel over checkpoints."""
    tables = {label: table.filter(quantity="p").sort("offset") for label, table in by_offset_by_label.items()}
    found = sorted({head for table in tables.values() for head in table["head"].unique()})
    labels = [token_label(label, LONGEST_LABEL, space=" ") for label in tables]
    figure, panels = head_panels(
        list(heads) if heads is not None else found,
        width,
        x_label=OFFSET,
        y_label="position kernel (Tᵖ)",
        legend=[line_entry(label, theme.style_of(place)) for place, label in enumerate(labels)],
    )
    for head, axes in panels.items():
        for place, table in enumerate(tables.values()):
            curve = table.filter(head=head)
            line(axes, curve["offset"], curve["value"], theme.style_of(place))
    return figure


def _along_keys(by_offset: pl.DataFrame) -> pl.DataFrame:
    key = (pl.col("query_position") - pl.col("offset")).alias("key_position")
    attention = by_offset.filter(quantity="attention").with_columns(key).rename({"value": "mean"})
    return attention.sort("head", "query_position", "key_position")


def _rows_of(positions: pl.DataFrame, quantity: str, layer_norm: bool = True) -> pl.DataFrame:
    kept = (pl.col("quantity") == quantity) & (pl.col("layer_norm") == layer_norm)
    return positions.filter(kept).sort("head", "query_position", "key_position")


def _query_curves(
    positions: pl.DataFrame,
    quantity: str,
    heads: Sequence[int] | None,
    queries: Sequence[int] | None,
    width: theme.Width,
    band_share: float | None = None,
) -> Figure:
    """One panel per head: one query with the extremes of σ, or one line per query."""
    rows = _rows_of(positions, quantity)
    asked = chosen_queries(rows, queries)
    many = len(asked) > 1
    has_extremes = not rows["at_largest_scale"].drop_nulls().is_empty()
    legend = [line_entry(f"query {query}", theme.style_of(place)) for place, query in enumerate(asked)]
    if not many and asked:
        legend = _extremes_legend(asked[0], band_share) if has_extremes else legend
    if many and not rows["low"].drop_nulls().is_empty():
        legend.append(band_entry(band_name("pairs of tokens", band_share), ANY_QUERY))
    figure, panels = head_panels(
        chosen_heads(rows, heads), width, x_label=KEY_POSITION, y_label=NAMES[quantity], legend=legend
    )
    for head, axes in panels.items():
        for place, query in enumerate(asked):
            curve = rows.filter((pl.col("head") == head) & (pl.col("query_position") == query))
            style = theme.style_of(place)
            band(axes, curve["key_position"], curve["low"], curve["high"], style)
            if not many:
                line(axes, curve["key_position"], curve["at_largest_scale"], LARGEST, linewidth=0.7)
                line(axes, curve["key_position"], curve["at_smallest_scale"], SMALLEST, linewidth=0.7)
            line(axes, curve["key_position"], curve["mean"], style)
    return figure


def _extremes_legend(query: int, band_share: float | None) -> list[Artist]:
    return [
        line_entry(f"query {query}, mean σ", MEAN),
        line_entry("largest σ", LARGEST),
        line_entry("smallest σ", SMALLEST),
        band_entry(band_name("pairs of tokens", band_share), MEAN),
    ]


def _shared_query(tables: Sequence[pl.DataFrame], query: int | None) -> int:
    """The given query position, or the largest that all checkpoints have."""
    shared = set.intersection(*(set(table["query_position"].drop_nulls()) for table in tables))
    return query if query is not None else max(shared, default=0)

"""How does position's pull differ between checkpoints? T^p, T^pp, their sum or its softmax, one line a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
from matplotlib.figure import Figure

from detoklens.figures import theme
from detoklens.figures.marks import line, line_entry
from detoklens.figures.panels import head_panels
from detoklens.figures.position_curves import rows_of
from detoklens.figures.wording import KEY_POSITION, token_label

LONGEST_LABEL = 40
NAMES = {
    "p": "position alone (Tᵖ)",
    "pp": "position and position (Tᵖᵖ)",
    "p+pp": "position terms together (Tᵖ + Tᵖᵖ)",
    "attention": "attention by position alone",
}


@theme.figure_function
def compare_positions(
    positions_by_label: Mapping[str, pl.DataFrame],
    *,
    heads: Sequence[int] | None = None,
    quantity: str = "p",
    query: int | None = None,
    width: theme.Width = "page",
) -> Figure:
    """How does position's pull differ between checkpoints? At one query position where the quantity has one."""
    tables = {label: rows_of(table, quantity) for label, table in positions_by_label.items()}
    asked = _query(list(tables.values()), query) if quantity != "p" else None
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


def _query(tables: Sequence[pl.DataFrame], query: int | None) -> int:
    """The asked query position, or the largest that all checkpoints have."""
    shared = set.intersection(*(set(table["query_position"].drop_nulls()) for table in tables))
    return query if query is not None else max(shared, default=0)

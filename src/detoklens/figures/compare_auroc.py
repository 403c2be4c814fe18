"""How does each head's AUROC differ between checkpoints? One marker a checkpoint, with its interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
from matplotlib.figure import Figure

from detoklens.figures import theme
from detoklens.figures.auroc import MEASURES
from detoklens.figures.head_rows import ROW, head_rows, in_order, intervals, points
from detoklens.figures.marks import point_entry, reference
from detoklens.figures.wording import token_label

LONGEST_LABEL = 40


@theme.figure_function
def compare_auroc(
    auroc_by_label: Mapping[str, pl.DataFrame],
    *,
    heads: Sequence[int] | None = None,
    measure: str = "seen",
    width: theme.Width = "page",
) -> Figure:
    """How does each head's AUROC differ between checkpoints? A head that a checkpoint lacks has no marker there."""
    found = sorted({head for table in auroc_by_label.values() for head in table["head"]})
    asked = list(heads) if heads is not None else found
    labels = [token_label(label, LONGEST_LABEL, space=" ") for label in auroc_by_label]
    legend = [point_entry(label, theme.style_of(place)) for place, label in enumerate(labels)]
    step = 0.7 / len(labels)
    row = max(ROW, 0.06 * len(labels))
    figure, (axes,) = head_rows(asked, width, [MEASURES[measure]], legend=legend, row=row)
    for place, table in enumerate(auroc_by_label.values()):
        rows, shift = in_order(table, asked), (place - (len(labels) - 1) / 2) * step
        intervals(axes, rows[f"{measure}_low"], rows[f"{measure}_high"], theme.style_of(place), shift)
        points(axes, rows[measure], theme.style_of(place), shift=shift)
    reference(axes, x=0.5)
    return figure

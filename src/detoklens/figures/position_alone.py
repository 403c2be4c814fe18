"""How strongly does each key position assert itself, whoever asks? T^p, with and without LayerNorm."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from matplotlib.figure import Figure

from detoklens.figures import theme
from detoklens.figures.marks import band, band_entry, line, line_entry
from detoklens.figures.panels import titled_panels
from detoklens.figures.position_curves import chosen_heads, rows_of
from detoklens.figures.wording import KEY_POSITION, head_name

PAIRS_PER_INCH = 2  # heads whose panels without LayerNorm still fit beside those with it
MEAN = theme.SERIES[0]


@theme.figure_function
def position_alone(
    positions: pl.DataFrame,
    *,
    heads: Sequence[int] | None = None,
    layer_norm: bool | None = None,
    width: theme.Width = "page",
) -> Figure:
    """How strongly does each key position assert itself, whoever asks? With LayerNorm, without (False), or both."""
    asked = chosen_heads(positions, heads)
    both = len(asked) <= PAIRS_PER_INCH * theme.inches(width)
    variants = [layer_norm] if layer_norm is not None else [True, False] if both else [True]
    variants = [variant for variant in variants if rows_of(positions, "p", variant).height]
    pairs = [(head, variant) for head in asked for variant in variants]
    figure, panels = titled_panels(
        [head_name(head) + ("" if variant else ", no LayerNorm") for head, variant in pairs],
        width,
        x_label=KEY_POSITION,
        y_label="position alone (Tᵖ)",
        legend=[line_entry("mean σ", MEAN), band_entry("most tokens", MEAN)],
        columns=len(variants),
    )
    for (head, variant), axes in zip(pairs, panels, strict=True):
        rows = rows_of(positions, "p", variant).filter(head=head)
        band(axes, rows["key_position"], rows["low"], rows["high"], MEAN)
        line(axes, rows["key_position"], rows["mean"], MEAN)
    return figure

"""Bars of shares, one row a head, each part with its colour and hatch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
from matplotlib.axes import Axes

from detoklens.figures import theme


def stacked(axes: Axes, parts: Sequence[pl.Series], styles: Sequence[theme.Style], shift: float, height: float) -> None:
    """Parts of one bar per head from left to right; an undefined part has no width."""
    if all(part.drop_nulls().is_empty() for part in parts):
        return
    left = pl.Series([0.0] * len(parts[0]))
    for part, style in zip(parts, styles, strict=True):
        size = part.fill_null(0.0)
        places = [place + shift for place in range(len(part))]
        look: dict[str, Any] = {
            "color": style.colour,
            "hatch": style.hatch,
            "edgecolor": theme.INK,
            "linewidth": 0.3,
        }
        axes.barh(places, size.to_list(), left=left.to_list(), height=height, **look)
        left = left + size

"""Which positions stand out? Every position's variance, the switch at position 0, the last query position.

The parts are in `outliers`, `switch` and `undertrained`; here they are asked together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from jaxtyping import Float

from detoklens.analyses.outliers import deviations, outliers
from detoklens.analyses.scale_summary import Average, ScaleSummary, summarise_scales
from detoklens.analyses.switch import switch
from detoklens.analyses.undertrained import last_queries, undertrained
from detoklens.analyses.watching import Watcher
from detoklens.scores.layer import Layer
from detoklens.tables.variance import POSITION_VARIANCE


@dataclass(frozen=True)
class Variance:
    """The four tables of `detoklens.tables.variance`."""

    position_variance: pl.DataFrame
    switch: pl.DataFrame
    last_queries: pl.DataFrame
    undertrained: pl.DataFrame


def variance(
    layer: Layer,
    average: Average = "ratio-of-mean",
    token_weights: Float[np.ndarray, "token"] | None = None,
    watch: Watcher | None = None,
) -> Variance:
    """Which positions stand out, and what follows for attention to the first token and from the last one?"""
    summary = summarise_scales(layer.scales, token_weights, watch=watch)
    return Variance(
        position_variance=position_variance(layer, summary),
        switch=switch(layer, summary.inverse(average)),
        last_queries=last_queries(layer),
        undertrained=undertrained(layer),
    )


def position_variance(layer: Layer, summary: ScaleSummary) -> pl.DataFrame:
    """Which position embeddings have an exceptional variance, and what does LayerNorm divide by there?"""
    variances = layer.scales.position_variance.astype(np.float64)
    return POSITION_VARIANCE.frame(
        {
            "position": np.arange(len(variances)),
            "variance": variances,
            "scale": summary.mean,
            "deviation": deviations(variances),
            "outlier": outliers(variances),
        }
    )

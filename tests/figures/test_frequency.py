"""What the clouds of tokens hold: every token once, over its count."""

from __future__ import annotations

import numpy as np
import polars as pl

from tests.figures.specs import FIGURES
from tests.figures.synthetic import tables

DRAWN = tables(3)


def test_tokens_alone_lie_over_their_count_plus_one_and_titles_say_spearman() -> None:
    figure = FIGURES["token_alone"].draw(DRAWN)
    for place, axes in enumerate(figure.axes):
        head, column = place // 2, ("score", "score_without_norm")[place % 2]
        rows = DRAWN["self_assertion"].filter(head=head)
        (cloud,) = axes.lines
        assert cloud.get_rasterized()
        np.testing.assert_array_equal(cloud.get_xdata(), rows["count"] + 1)
        np.testing.assert_array_equal(cloud.get_ydata(), rows[column].cast(pl.Float64))
        assert axes.get_xscale() == "log"
        assert axes.get_title(loc="left").startswith(f"L0H{head}" + ", no LN" * (place % 2) + ": ρ ")
    assert figure.axes[0].get_title(loc="left") == "L0H0: ρ −0.68"


def test_variances_of_tokens_lie_over_their_count_plus_one() -> None:
    figure = FIGURES["token_variance"].draw(DRAWN)
    (axes,) = figure.axes
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), DRAWN["frequency_by_token"]["variance"])
    assert axes.get_title(loc="left") == "token embeddings: ρ = −0.63 over 150 tokens"

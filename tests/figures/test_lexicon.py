"""What the lexicon's lines hold: shares up to each rank, scores by rank."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from tests.figures.specs import FIGURES
from tests.figures.synthetic import tables

DRAWN = tables(3)


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_the_lexicon_shows_running_shares() -> None:
    lexicon = DRAWN["lexicon"].filter(head=0).head(4)
    lexicon = lexicon.with_columns(is_word=pl.Series([True, None, False, True]), count=pl.Series([0, 3, 0, 1]))
    (axes,) = FIGURES["lexicon"].draw({"lexicon": lexicon}).axes
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [1, 1, 1 / 2, 2 / 3])
    np.testing.assert_allclose(axes.lines[1].get_ydata(), [0, 1 / 2, 1 / 3, 1 / 2])
    (without_counts,) = FIGURES["lexicon"].draw({"lexicon": lexicon.drop("count")}).axes
    assert len(without_counts.lines) == 1


def test_a_share_that_is_not_known_has_no_entry_in_the_legend() -> None:
    unknown = DRAWN["lexicon"].with_columns(is_word=pl.lit(None, dtype=pl.Boolean))
    (legend,) = FIGURES["lexicon"].draw({"lexicon": unknown}).legends
    assert [text.get_text() for text in legend.get_texts()] == ["pair occurs in the corpus"]


def test_the_strongest_heads_of_the_lexicon_are_named() -> None:
    figure = FIGURES["lexicon_scores"].draw(tables(8))
    assert legend(figure) == [f"L0H{head}" for head in (7, 6, 5, 4, 3, 2)]
    assert len(figure.axes[0].lines) == 8

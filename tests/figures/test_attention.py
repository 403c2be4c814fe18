"""Attention on text, drawn: the tables' numbers, beside the prediction, near the query, and in parts."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from matplotlib.axes import Axes

from detoklens.figures.labels import KEY
from detoklens.questions.attention import Attention
from tests.figures.synthetic import tables

DRAWN = tables(3)
FIGURES = {spec.name: spec for spec in Attention.figures}


def curve(axes: Axes, index: int = -1) -> np.ndarray:
    return np.array(axes.lines[index].get_xydata())


def expected(frame: pl.DataFrame, x: str, y: str) -> np.ndarray:
    return frame.select(pl.col(x, y).cast(pl.Float64)).to_numpy()


@pytest.mark.parametrize("name", ["attention", "attention_near"])
def test_the_axis_says_who_is_attended_to(name: str) -> None:
    assert FIGURES[name].draw(DRAWN).get_supxlabel() == f"{KEY}, position"
    assert KEY == "key (attended to)"


def test_attention_is_drawn_beside_its_prediction() -> None:
    figure = FIGURES["attention"].draw(DRAWN, heads=[0], query=63)
    rows = DRAWN["attention"].filter(head=0, query_position=63)
    np.testing.assert_array_equal(curve(figure.axes[0], 0), expected(rows, "key_position", "mean"))
    np.testing.assert_array_equal(curve(figure.axes[0], 1), expected(rows, "key_position", "predicted"))
    assert figure.legends[0].get_texts()[0].get_text() == "on text, mean (query 63)"
    near = FIGURES["attention"].draw(DRAWN, heads=[0], query=63, last=5)
    assert curve(near.axes[0], 0)[:, 0].tolist() == [59, 60, 61, 62, 63]


def test_attention_is_shown_at_the_middle_query_unless_asked() -> None:
    figure = FIGURES["attention"].draw(DRAWN)
    assert figure.legends[0].get_texts()[0].get_text() == "on text, mean (query 32)"


def test_near_attention_shows_the_last_30_keys() -> None:
    figure = FIGURES["attention_near"].draw(DRAWN, heads=[0], query=63)
    assert curve(figure.axes[0], 0)[:, 0].tolist() == list(range(34, 64))


def test_parts_of_attention_are_means_over_queries_or_one_query() -> None:
    rows = DRAWN["attention_agreement"]
    for query, wanted in ((None, rows), (32, rows.filter(query_position=32))):
        (axes,) = FIGURES["attention_parts"].draw(DRAWN, query=query).axes
        widths = [[bar.get_width() for bar in container] for container in axes.containers]
        means = wanted.group_by("head", maintain_order=True).mean()
        np.testing.assert_allclose(widths[0], means["measured_first"])
        np.testing.assert_allclose(widths[8], means["predicted_self"])

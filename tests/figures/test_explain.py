"""A text's attention, drawn: every number in its cell, every name readable, the strongest links with their terms."""

from __future__ import annotations

from functools import cache

import numpy as np
import polars as pl
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from detoklens.figures.panels import TALLEST
from detoklens.questions.explain.compute import explain, pair_table, strongest_links
from detoklens.questions.explain.figures import MOST_BARS
from detoklens.questions.explain.question import Explain
from tests.figures.synthetic import HOSTILE
from tests.figures.test_layout import collisions
from tests.layers import random_layer

(SPEC,) = Explain.figures
ALL_NAMES = 40  # tokens whose names must be readable in a column
Drawn = dict[str, pl.DataFrame]


@cache
def explained(tokens: int, n_heads: int = 3, top: int = 5) -> Drawn:
    """A random text of hostile tokens."""
    layer = random_layer(n_heads=n_heads, d_head=4, n_positions=300, seed=tokens)
    found = explain(layer, np.random.default_rng(0).integers(0, layer.vocab_size, tokens))
    texts = [HOSTILE[place % len(HOSTILE)] for place in range(tokens)]
    return {"explanation": pair_table(found, texts), "links": strongest_links(found, texts, top)}


def names_of(figure: Figure) -> list[list[str]]:
    """The names beside the first panel and below the last."""
    below = figure.axes[-2].xaxis
    ticks = sorted([*below.get_major_ticks(), *below.get_minor_ticks()], key=lambda tick: tick.get_loc())
    return [
        [label.get_text() for label in figure.axes[0].get_yticklabels()],
        [tick.label1.get_text() for tick in ticks],
    ]


def frames_of(figure: Figure, panel: int) -> set[tuple[float, float]]:
    """Query and key of the framed cells."""
    frames = [patch for patch in figure.axes[panel].patches if isinstance(patch, Rectangle)]
    return {(frame.get_y() + 0.5, frame.get_x() + 0.5) for frame in frames}


def test_cells_hold_the_attention_by_query_row_and_key_column() -> None:
    drawn = explained(7)
    figure = SPEC.draw(drawn, heads=[2, 0])
    assert [axes.get_title(loc="left") for axes in figure.axes[:2]] == ["L0H2", "L0H0"]
    for axes, head in zip(figure.axes, (2, 0), strict=False):
        image = np.ma.filled(axes.images[0].get_array(), np.nan)
        for row in drawn["explanation"].filter(head=head).iter_rows(named=True):
            assert image[row["query_position"], row["key_position"]] == row["attention"]
        assert np.isnan(image[np.triu_indices(7, 1)]).all(), "no key comes after its query"
    assert figure.get_supxlabel() == "key (attended to)"
    assert figure.get_supylabel() == "query (attends)"


def test_the_strongest_links_are_framed_and_their_terms_stand_at_the_end_of_the_row() -> None:
    drawn = explained(9)
    figure = SPEC.draw(drawn)
    for head in range(3):
        links = drawn["links"].filter(head=head)
        assert frames_of(figure, head) == set(links.select("query_position", "key_position").iter_rows())
        rows = links.sort("query_position", "key_position").group_by("query_position", maintain_order=True)
        labels = {text.xy[1]: text.get_text() for text in figure.axes[head].texts}
        symbols = {"ee": "Tᵉᵉ", "pp": "Tᵖᵖ", "pe": "Tᵖᵉ", "ep": "Tᵉᵖ", "e": "Tᵉ", "p": "Tᵖ"}
        assert labels == {query: " ".join(symbols[term] for term in row["term"].drop_nulls()) for (query,), row in rows}


def test_fewer_links_can_be_asked_for() -> None:
    figure = SPEC.draw(explained(9), heads=[1], top=2)
    assert len(frames_of(figure, 0)) == 2


@pytest.mark.parametrize("width", ["column", "page"])
@pytest.mark.parametrize("tokens", [1, 2, 9, 25, ALL_NAMES])
def test_every_token_is_named_on_both_axes(width: str, tokens: int) -> None:
    figure = SPEC.draw(explained(tokens), heads=[1], width=width)
    beside, below = names_of(figure)
    assert beside == below
    assert len(beside) == tokens
    assert beside[:2] == ["$x^2$", "␣Korea"][:tokens]
    assert collisions(figure) == []


@pytest.mark.parametrize("width", ["column", "page"])
@pytest.mark.parametrize(("tokens", "heads"), [(5, 12), (ALL_NAMES, 12), (120, 3), (5, 32)])
def test_labels_stand_apart_and_fit_a_page(width: str, tokens: int, heads: int) -> None:
    figure = SPEC.draw(explained(tokens, heads), width=width)
    assert collisions(figure) == []
    assert figure.get_size_inches()[1] < TALLEST + 1e-9


def test_longer_texts_show_their_links_as_bars() -> None:
    drawn = explained(120)
    figure = SPEC.draw(drawn, heads=[2, 0])
    (axes,) = figure.axes
    links = pl.concat([drawn["links"].filter(head=head) for head in (2, 0)])
    assert [bar.get_width() for bar in axes.containers[0]] == links["attention"].to_list()
    np.testing.assert_array_equal(axes.lines[0].get_xdata(), links["without_term"].cast(pl.Float64).to_numpy())
    first = links.row(0, named=True)
    name = axes.get_yticklabels()[0].get_text()
    assert name.startswith("L0H2  ")
    assert f" {first['query_position']} → " in name
    assert name.endswith(f" {first['key_position']}")
    assert len(axes.texts) == links["term"].drop_nulls().len()


def test_bars_of_many_heads_fill_at_most_a_page() -> None:
    figure = SPEC.draw(explained(60, 32))
    assert len(figure.axes[0].containers[0]) == 32
    assert len(SPEC.draw(explained(60, 12)).axes[0].containers[0]) == min(MOST_BARS, 12 * 5)


@pytest.mark.parametrize("tokens", [4, 120])
def test_what_has_no_number_says_so(tokens: int) -> None:
    nothing = {
        name: frame.with_columns(pl.lit(None, dtype=pl.Float64).alias("attention"))
        for name, frame in explained(tokens).items()
    }
    for drawn, heads in ((nothing, None), (explained(tokens), [7]), (explained(tokens), [])):
        panels = [axes for axes in SPEC.draw(drawn, heads=heads).axes if axes.axison]
        assert panels
        assert all([text.get_text() for text in axes.texts] == ["no data"] for axes in panels)

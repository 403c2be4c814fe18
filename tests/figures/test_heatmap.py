"""What the heatmaps hold: every score where its query and key are."""

from __future__ import annotations

from math import ceil

import numpy as np
import polars as pl

from detoklens.questions.heatmap import NAME_HEIGHT
from tests.figures.specs import FIGURES
from tests.figures.synthetic import HOSTILE, tables

DRAWN = tables(3)


def test_heatmaps_hold_the_scores_by_query_row_and_key_column() -> None:
    figure = FIGURES["heatmap"].draw(DRAWN, heads=[1])
    for axes, layer_norm in zip(figure.axes, (True, False), strict=False):
        rows = DRAWN["heatmap"].filter(head=1, layer_norm=layer_norm)
        image = np.asarray(axes.images[0].get_array())
        row = rows.row(17, named=True)
        assert image[row["query_place"], row["key_place"]] == row["score"]
        assert image.shape == (len(HOSTILE), len(HOSTILE))
        assert axes.get_title(loc="left").endswith(
            f"{round(rows['score'].min())}…{round(rows['score'].max())}".replace("-", "−")
        )
    assert figure.get_supxlabel() == "key (attended to)"
    assert figure.get_supylabel() == "query (attends)"


def test_heatmaps_name_every_token_or_as_many_as_can_be_read() -> None:
    large = FIGURES["heatmap"].draw(DRAWN, heads=[0], width="page")
    assert [label.get_text() for label in large.axes[0].get_yticklabels()][:3] == ["$x^2$", "␣Korea", "</script>"]
    assert [label.get_text() for label in large.axes[1].get_xticklabels()][1] == "␣Korea"
    small = FIGURES["heatmap"].draw(DRAWN, width="column")
    every = [label.get_text() for label in large.axes[0].get_yticklabels()]
    named = [label.get_text() for label in small.axes[0].get_yticklabels()]
    assert 1 < len(named) < len(every)
    assert named == every[:: ceil(len(every) / len(named))]
    places = small.axes[0].get_yticks()
    assert small.axes[0].bbox.height / small.dpi / len(every) * (places[1] - places[0]) >= NAME_HEIGHT


def test_heatmaps_without_a_tokenizer_name_ids() -> None:
    ids = DRAWN["heatmap_tokens"].with_columns(token=pl.lit(None, pl.String))
    figure = FIGURES["heatmap"].draw(DRAWN | {"heatmap_tokens": ids}, heads=[0])
    assert figure.axes[0].get_yticklabels()[0].get_text() == f"id {ids.sort('place')['token_id'][0]}"


def test_heatmaps_are_centred_at_zero_and_heads_share_a_range() -> None:
    figure = FIGURES["heatmap"].draw(DRAWN)
    panels = [axes for axes in figure.axes if axes.get_label() != "colour key"]
    for place, layer_norm in enumerate((True, False)):
        largest = DRAWN["heatmap"].filter(layer_norm=layer_norm)["score"].abs().max()
        ranges = {axes.images[0].get_clim() for axes in panels[place::2]}
        assert ranges == {(-largest, largest)}

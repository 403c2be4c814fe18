"""What the artists of head and token figures hold: one point, bar, image or curve for each number of the tables."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from detoklens.figures import COMPARISONS, FIGURES
from detoklens.figures.head_cards import MEASURES
from detoklens.figures.theme import REFERENCE
from tests.figures.synthetic import HOSTILE, TERMS, tables

DRAWN = tables(3)


def points(axes: Axes) -> list[list[float]]:
    """Values of each series of points, references left out."""
    return [list(line.get_xdata()) for line in axes.lines if line.get_label() != REFERENCE]


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def values(table: str, column: str) -> list[float]:
    return DRAWN[table][column].to_list()


@pytest.mark.parametrize("measure", ["seen", "all", "weighted"])
def test_auroc_has_its_interval_nulls_and_baseline(measure: str) -> None:
    figure = FIGURES["auroc"].draw(DRAWN, measure=measure)
    (axes,) = figure.axes
    controls = ["shuffled_queries", "permuted_keys", "frequency"]
    assert points(axes) == [*(values("auroc_controls", name) for name in controls), values("auroc_by_head", measure)]
    ends = [(segment[0, 0], segment[1, 0]) for segment in axes.collections[0].get_segments()]
    low, high = values("auroc_by_head", f"{measure}_low"), values("auroc_by_head", f"{measure}_high")
    assert ends == list(zip(low, high, strict=True))
    assert [label.get_text() for label in axes.get_yticklabels()] == ["L0H0", "L0H1", "L0H2"]
    assert len(legend(figure)) == 4
    assert [line.get_xdata()[0] for line in axes.lines if line.get_label() == REFERENCE] == [0.5]


def test_auroc_over_pieces_is_drawn_alike_under_its_own_title() -> None:
    (axes,) = FIGURES["auroc_pieces"].draw(DRAWN).axes
    assert points(axes)[-1] == values("auroc_pieces_by_head", "seen")
    assert len(points(axes)) == 4
    assert axes.get_title(loc="left") == "mean AUROC over query tokens that continue a word"


def test_rows_follow_the_asked_heads_and_a_missing_head_has_no_point() -> None:
    (axes,) = FIGURES["auroc"].draw({"auroc_by_head": DRAWN["auroc_by_head"]}, heads=[2, 7, 0]).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["L0H2", "L0H7", "L0H0"]
    seen = values("auroc_by_head", "seen")
    np.testing.assert_array_equal(points(axes)[0], [seen[2], np.nan, seen[0]])
    assert axes.get_ylim()[0] > axes.get_ylim()[1], "the first head is on top"


def test_head_cards_show_every_number_and_what_position_prefers() -> None:
    figure = FIGURES["head_cards"].draw(DRAWN)
    for axes, measure in zip(figure.axes, MEASURES, strict=True):
        assert points(axes)[-1] == values("heads", measure.column)
    assert points(figure.axes[0])[0] == values("heads", "auroc_null")
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == [
        "self  L0H0",
        "previous token  L0H1",
        "broad  L0H2",
    ]


@pytest.mark.parametrize(
    ("name", "table", "columns"),
    [
        ("precision", "precision_by_head", [["chance_average_precision", "average_precision"],
                                            ["chance_precision_at_k", "precision_at_k"]]),
        ("words", "words_by_head", [["null_median_share", "median_share"], ["first"], ["top_1_percent"],
                                    ["top_10_percent"]]),
        ("first_position", "switch", [["next_without_norm", "first_without_norm"], ["next", "first"]]),
    ],
)  # fmt: skip
def test_each_panel_shows_its_columns(name: str, table: str, columns: list[list[str]]) -> None:
    figure = FIGURES[name].draw(DRAWN)
    for axes, names in zip(figure.axes, columns, strict=True):
        assert points(axes) == [values(table, column) for column in names]


def test_shape_numbers_have_one_marker_a_query() -> None:
    figure = FIGURES["shape_numbers"].draw(DRAWN)
    assert legend(figure) == ["query 3", "query 32", "query 63"]
    slopes = [DRAWN["shape"].filter(query_position=query)["alibi_slope"].to_list() for query in (3, 32, 63)]
    assert points(figure.axes[0]) == slopes


def test_shares_of_the_terms_fill_the_bar_in_a_fixed_order() -> None:
    figure = FIGURES["contribution_shares"].draw(DRAWN)
    (axes,) = figure.axes
    bars = np.array([[bar.get_width() for bar in container] for container in axes.containers])
    for place, term in enumerate(["ee", "pp", "e", "p", "ep", "pe"]):
        np.testing.assert_allclose(bars[place], DRAWN["contributions_by_head"].filter(term=term)["share"])
    starts = [[bar.get_x() for bar in container] for container in axes.containers]
    np.testing.assert_allclose(starts[1:], bars.cumsum(axis=0)[:-1])
    np.testing.assert_allclose(bars.sum(axis=0), 1)
    assert len({container[0].get_hatch() for container in axes.containers}) == len(TERMS)


def test_parts_of_attention_are_means_over_queries_or_one_query() -> None:
    rows = DRAWN["attention_agreement"]
    for query, wanted in ((None, rows), (32, rows.filter(query_position=32))):
        (axes,) = FIGURES["attention_parts"].draw(DRAWN, query=query).axes
        widths = [[bar.get_width() for bar in container] for container in axes.containers]
        means = wanted.group_by("head", maintain_order=True).mean()
        np.testing.assert_allclose(widths[0], means["measured_first"])
        np.testing.assert_allclose(widths[7], means["predicted_self"])


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


def test_heatmaps_name_their_tokens_only_where_they_can_be_read() -> None:
    large = FIGURES["heatmap"].draw(DRAWN, heads=[0], width="page")
    assert [label.get_text() for label in large.axes[0].get_yticklabels()][:3] == ["$x^2$", "␣Korea", "</script>"]
    assert [label.get_text() for label in large.axes[1].get_xticklabels()][1] == "␣Korea"
    small = FIGURES["heatmap"].draw(DRAWN, width="column")
    assert [label.get_text() for label in small.axes[0].get_yticklabels()] == []


def test_roc_curves_one_a_token_with_their_areas() -> None:
    figure = FIGURES["roc"].draw(DRAWN)
    assert legend(figure) == ["$iens$", "␣Jackson", "\\u6f22\\u5b57"]
    for head, axes in enumerate(figure.axes):
        curves = [line for line in axes.lines if line.get_label() != REFERENCE]
        rows = DRAWN["roc_points"].filter(head=head, token_id=9)
        np.testing.assert_allclose(curves[1].get_ydata(), rows["true_positive_rate"])
        areas = DRAWN["auroc_by_token"].filter(head=head)["auroc"]
        assert [text.get_text() for text in axes.texts] == [f"{area:.2f}" for area in reversed(areas)]


def test_roc_curves_of_asked_tokens() -> None:
    assert legend(FIGURES["roc"].draw(DRAWN, tokens=[11])) == ["\\u6f22\\u5b57"]


def test_tokens_alone_lie_over_their_count_plus_one_and_titles_say_spearman() -> None:
    figure = FIGURES["token_alone"].draw(DRAWN)
    for head, axes in enumerate(figure.axes):
        rows = DRAWN["self_assertion"].filter(head=head)
        (cloud,) = axes.lines
        assert cloud.get_rasterized()
        np.testing.assert_array_equal(cloud.get_xdata(), rows["count"] + 1)
        np.testing.assert_array_equal(cloud.get_ydata(), rows["score"].cast(pl.Float64))
        assert axes.get_xscale() == "log"
        assert axes.get_title(loc="left") == f"L0H{head} ρ −0.68"


def test_variances_of_tokens_lie_over_their_count_plus_one() -> None:
    figure = FIGURES["token_variance"].draw(DRAWN)
    (axes,) = figure.axes
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), DRAWN["frequency_by_token"]["variance"])
    assert axes.get_title(loc="left") == "token embeddings  ρ = −0.63 over 150 tokens"


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


def test_partners_are_written_by_rank_under_token_and_head() -> None:
    figure = FIGURES["partners"].draw(DRAWN, heads=[1], top=3)
    written = [text.get_text() for text in figure.texts]
    assert written[:4] == ["␣Korea  L0H1", "1  $x^2$", "2  ␣Korea", "3  </script>"]
    assert written[4] == "$yo  L0H1"
    assert [text.get_text() for text in FIGURES["partners"].draw(DRAWN, heads=[5], tokens=[2]).texts] == [
        "$yo  L0H5",
        "no data",
    ]


def test_compared_heads_are_lines_over_checkpoints_or_points() -> None:
    later = tables(3, seed=1)["heads"]
    figure = COMPARISONS["compare_heads"].draw({"heads": {"step 0": DRAWN["heads"], "step\n1": later}})
    lines = [line for line in figure.axes[0].lines if line.get_label() != REFERENCE]
    assert list(lines[0].get_ydata()) == [DRAWN["heads"]["auroc"][0], later["auroc"][0]]
    assert [label.get_text() for label in figure.axes[-1].get_xticklabels()] == ["step 0", "step\\n1"]
    mixed = COMPARISONS["compare_heads"].draw({"heads": {"small": DRAWN["heads"], "large": tables(5)["heads"]}})
    cloud = [line for line in mixed.axes[0].lines if line.get_label() != REFERENCE]
    assert [len(line.get_xdata()) for line in cloud] == [8]


def test_compared_aurocs_share_the_heads_row() -> None:
    later = tables(4, seed=1)["auroc_by_head"]
    figure = COMPARISONS["compare_auroc"].draw({"auroc_by_head": {"one": DRAWN["auroc_by_head"], "two": later}})
    (axes,) = figure.axes
    assert legend(figure) == ["one", "two"]
    assert np.isnan(points(axes)[0][3])
    assert points(axes)[1] == later["seen"].to_list()


def test_compared_positions_are_one_line_a_checkpoint_at_a_shared_query() -> None:
    short = tables(2, positions=33, seed=1)["positions"]
    both = {"positions": {"long": DRAWN["positions"], "short": short}}
    figure = COMPARISONS["compare_positions"].draw(both, quantity="attention", query=32)
    assert figure.get_supylabel() == "attention by position alone, query 32"
    assert [len(axes.lines) for axes in figure.axes] == [2, 2, 1]
    alone = COMPARISONS["compare_positions"].draw(both)
    assert [len(line.get_xdata()) for line in alone.axes[0].lines] == [64, 33]
    shared = COMPARISONS["compare_positions"].draw(both, quantity="pp")
    assert shared.get_supylabel().endswith("query 32")


def test_compared_terms_are_means_over_heads() -> None:
    later = tables(3, seed=1)["contributions_by_head"]
    both = {"contributions_by_head": {"one": DRAWN["contributions_by_head"], "two": later}}
    (axes,) = COMPARISONS["compare_contributions"].draw(both).axes
    means = [table.filter(term="ee")["share"].mean() for table in both["contributions_by_head"].values()]
    np.testing.assert_allclose(axes.lines[0].get_ydata(), means)

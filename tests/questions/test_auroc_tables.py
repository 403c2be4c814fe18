"""The tables of `Auroc` say what was measured."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from detoklens.errors import TokenError
from detoklens.kernels.ranking import AUROC
from detoklens.measures.auroc import RankingOptions, measure_heads
from detoklens.questions.auroc.compute import (
    AUROC_BY_HEAD,
    AUROC_BY_TOKEN,
    GLANCE,
    PRECISION_BY_TOKEN,
    areas_under,
    auroc_tables,
    controls_by_head,
    curves_at_a_glance,
    roc_points,
)
from tests.measures.auroc_oracle import random_affinity, random_counts, random_positives

VOCAB_SIZE = 90


@pytest.fixture(scope="module")
def answered():
    affinity, positives = random_affinity(3, VOCAB_SIZE, 2, 1, whole=True), random_positives(VOCAB_SIZE, 1)
    counts = random_counts(VOCAB_SIZE, 1)
    return affinity, positives, measure_heads(affinity, positives, np.arange(VOCAB_SIZE), counts, RankingOptions(k=4))


def test_tables_say_what_was_measured(answered) -> None:
    _, positives, measures = answered
    heads = [0, 4, 5]
    texts = [f"t{token}" for token in range(VOCAB_SIZE)]
    tables = auroc_tables(measures, heads, positives, texts, k=4, resamples=30, seed=0)
    by_token = tables["auroc_by_token"]
    assert by_token.columns == [column.name for column in AUROC_BY_TOKEN.columns]
    row = by_token.row(VOCAB_SIZE + 7, named=True)
    assert (row["head"], row["token_id"], row["token"]) == (4, 7, "t7")
    assert (row["positives"], row["bigrams"]) == (positives.sizes[7], positives.totals[7])
    assert row["auroc"] == measures.heads[1, 7, AUROC]
    undefined = np.isnan(measures.heads[0, :, AUROC])
    assert by_token["auroc"].null_count() == 3 * undefined.sum() > 0
    by_head = tables["auroc_by_head"]
    assert by_head.columns == [column.name for column in AUROC_BY_HEAD.columns]
    assert by_head["seen"].to_list() == pytest.approx(np.nanmean(measures.heads[..., AUROC], axis=1).tolist())
    assert by_head["tokens_seen"].to_list() == [VOCAB_SIZE - undefined.sum()] * 3
    assert tables["precision_by_token"].columns == [column.name for column in PRECISION_BY_TOKEN.columns]
    assert_frame_equal(tables["auroc_controls"], controls_by_head(measures, heads, 30, 0))
    glance = tables["auroc"]
    assert glance.columns == GLANCE.names
    assert glance["head"].to_list() == heads
    assert glance["frequency"].n_unique() == 1
    assert glance["k"].to_list() == [4, 4, 4]


def test_controls_stand_beside_the_mean(answered) -> None:
    _, _, measures = answered
    table = controls_by_head(measures, [0, 1, 2], 200, 0)
    for name in ("shuffled_queries", "permuted_keys"):
        assert table[name].to_list() == pytest.approx(np.nanmean(getattr(measures, name)[..., AUROC], axis=1).tolist())
    nulls = np.maximum(table["shuffled_queries"], table["permuted_keys"])
    np.testing.assert_allclose(table["above_null"], table["auroc"] - nulls)
    np.testing.assert_allclose(table["above_frequency"], table["auroc"] - table["frequency"])
    matched = measures.matched
    assert table["matched"].to_list() == pytest.approx(np.nanmean(matched.heads[..., AUROC], axis=1).tolist())
    null = np.maximum(np.nanmean(matched.shuffled_queries[..., AUROC], axis=1), 0.5)
    np.testing.assert_allclose(table["matched_null"], null)
    np.testing.assert_allclose(table["matched_above_null"], table["matched"] - null)
    np.testing.assert_allclose(table["matched_frequency"], np.nanmean(matched.frequency[:, AUROC]))
    assert table["strata"].to_list() == [measures.n_strata] * 3


def test_intervals_of_differences_are_those_of_pairs(answered) -> None:
    """Each resample takes a head and its controls from the same query tokens."""
    _, positives, measures = answered
    table = controls_by_head(measures, [0, 1, 2], 50, 9)
    by_head = auroc_tables(measures, [0, 1, 2], positives, [None] * VOCAB_SIZE, 4, 50, 9)["auroc_by_head"]
    assert_frame_equal(
        table.select("auroc_low", "auroc_high"), by_head.select(auroc_low="seen_low", auroc_high="seen_high")
    )
    drawing = np.random.default_rng(9)
    drawn = np.concatenate([drawing.integers(VOCAB_SIZE, size=(n, VOCAB_SIZE)) for n in (16, 16, 16, 2)])
    for name, given in (("", measures), ("matched_", measures.matched)):
        own, shuffled, exchanged = (
            np.stack([np.nanmean(each[1, row, AUROC]) for row in drawn])
            for each in (given.heads, given.shuffled_queries, given.permuted_keys)
        )
        expected = np.quantile(own - np.maximum(shuffled, exchanged), [0.025, 0.975])
        np.testing.assert_allclose(table.row(1, named=True)[f"{name}above_null_low"], expected[0])
        np.testing.assert_allclose(table.row(1, named=True)[f"{name}above_null_high"], expected[1])


def test_without_token_counts_only_the_query_null_is_there() -> None:
    measures = measure_heads(random_affinity(2, 40, 3, 3), random_positives(40, 3), np.arange(40))
    table = controls_by_head(measures, [0, 1], 0, 0)
    assert table["shuffled_queries"].null_count() == 0
    for name in ("permuted_keys", "frequency", "matched", "matched_null", "strata", "shuffled_queries_low"):
        assert table[name].null_count() == 2, name
    np.testing.assert_allclose(table["above_null"], table["auroc"] - table["shuffled_queries"])


@pytest.fixture(scope="module")
def curves(answered):
    affinity, positives, _ = answered
    tokens = [int(token) for token in np.argsort(positives.sizes)[[60, 30]]]
    return tokens, roc_points(affinity, [0, 4, 5], positives, tokens, [None] * 2)


def test_curves_stand_token_after_token_and_their_areas_are_the_auroc(answered, curves) -> None:
    _, _, measures = answered
    tokens, points = curves
    assert points["token_id"].unique(maintain_order=True).to_list() == tokens
    areas = areas_under(points)
    assert areas["head"].to_list() == [0, 4, 5] * 2
    expected = measures.heads[:, tokens, AUROC].T.ravel()
    np.testing.assert_allclose(areas["area"], expected, atol=1e-12)
    assert points.group_by("head", "token_id").first()["threshold"].null_count() == 6


def test_a_glance_at_curves_names_tokens_by_what_is_known_of_them(curves) -> None:
    tokens, points = curves
    glance = curves_at_a_glance(points)
    assert glance["token_id"].to_list() == np.repeat(tokens, 3).tolist()
    assert {len(curve) for curve in glance["curve"]} == {32}
    assert all(curve[0] == "▁" and curve[-1] == "█" for curve in glance["curve"])
    spelled = curves_at_a_glance(points.with_columns(token=pl.lit(" a")))
    assert spelled.columns == ["head", "token", "area", "curve"]


def test_a_token_without_positives_has_no_curve(answered) -> None:
    affinity, positives, _ = answered
    token = int(np.argmin(positives.sizes))
    with pytest.raises(TokenError, match="has 0 positives"):
        roc_points(affinity, [0, 1, 2], positives, [token], [None])

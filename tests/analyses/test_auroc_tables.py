"""Means with intervals, the curve's points, and the tables made of them."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_curve

from detoklens.analyses.auroc import (
    Judging,
    auroc_by_head,
    auroc_by_token,
    controls_by_head,
    heads_at_a_glance,
    measure_heads,
    precision_by_head,
    precision_by_token,
    roc_points,
)
from detoklens.analyses.auroc.blocks import scores_of
from detoklens.analyses.auroc.means import head_means
from detoklens.errors import TokenError
from detoklens.kernels.ranking import AUROC
from detoklens.tables.auroc import AUROC_BY_HEAD, AUROC_BY_TOKEN, PRECISION_BY_TOKEN
from tests.analyses.auroc_oracle import random_affinity, random_counts, random_positives

VOCAB_SIZE = 90


@pytest.fixture(scope="module")
def answered():
    affinity, positives = random_affinity(3, VOCAB_SIZE, 2, 1, whole=True), random_positives(VOCAB_SIZE, 1)
    counts = random_counts(VOCAB_SIZE, 1)
    return affinity, positives, measure_heads(affinity, positives, np.arange(VOCAB_SIZE), counts, Judging(k=4))


def test_the_three_means() -> None:
    auroc = np.array([[0.5, np.nan, 1.0, 0.9]])
    means = head_means(auroc, np.array([10, 0, 30, 60]), resamples=0)
    assert means.seen.value[0] == pytest.approx((0.5 + 1.0 + 0.9) / 3)
    assert means.all.value[0] == pytest.approx((0.5 + 1.0 + 0.9) / 4)
    assert means.weighted.value[0] == pytest.approx((5 + 30 + 54) / 100)
    assert np.isnan([means.seen.low, means.all.high]).all()


def test_intervals_are_those_of_resampled_tokens() -> None:
    random = np.random.default_rng(2)
    auroc, totals = random.random((2, 37)), random.integers(1, 99, 37)
    auroc[:, [3, 5]] = np.nan
    means = head_means(auroc, totals, resamples=50, seed=9)
    drawing = np.random.default_rng(9)
    drawn = np.concatenate([drawing.integers(37, size=(n, 37)) for n in (16, 16, 16, 2)])
    seen = [np.nanmean(auroc[1, row]) for row in drawn]
    weighted = [np.nansum((auroc[1] * totals)[row]) / totals[row][~np.isnan(auroc[1, row])].sum() for row in drawn]
    everything = [np.nansum(auroc[1, row]) / 37 for row in drawn]
    for interval, samples in ((means.seen, seen), (means.all, everything), (means.weighted, weighted)):
        np.testing.assert_allclose([interval.low[1], interval.high[1]], np.quantile(samples, [0.025, 0.975]))
        assert interval.low[1] < interval.value[1] < interval.high[1]


def test_intervals_depend_on_the_seed_alone() -> None:
    auroc, totals = np.random.default_rng(3).random((2, 50)), np.arange(50)
    first, again, other = (head_means(auroc, totals, 40, seed).weighted.low for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).all()


def test_nothing_seen_has_no_mean() -> None:
    means = head_means(np.full((1, 3), np.nan), np.zeros(3, np.int64), resamples=20)
    assert np.isnan([means.seen.value, means.weighted.value, means.seen.low]).all()
    assert means.all.value[0] == 0


def test_tables_say_what_was_measured(answered) -> None:
    _, positives, measures = answered
    heads = [0, 4, 5]
    texts = [f"t{token}" for token in range(VOCAB_SIZE)]
    by_token = auroc_by_token(measures, heads, positives, texts)
    assert by_token.columns == [column.name for column in AUROC_BY_TOKEN.columns]
    row = by_token.row(VOCAB_SIZE + 7, named=True)
    assert (row["head"], row["token_id"], row["token"]) == (4, 7, "t7")
    assert (row["positives"], row["bigrams"]) == (positives.sizes[7], positives.totals[7])
    assert row["auroc"] == measures.heads[1, 7, AUROC]
    undefined = np.isnan(measures.heads[0, :, AUROC])
    assert by_token["auroc"].null_count() == 3 * undefined.sum() > 0
    by_head = auroc_by_head(measures, heads, positives, resamples=30, seed=0)
    assert by_head.columns == [column.name for column in AUROC_BY_HEAD.columns]
    assert by_head["seen"].to_list() == pytest.approx(np.nanmean(measures.heads[..., AUROC], axis=1).tolist())
    assert by_head["tokens_seen"].to_list() == [VOCAB_SIZE - undefined.sum()] * 3
    precision = precision_by_token(measures, heads, 4, texts)
    assert precision.columns == [column.name for column in PRECISION_BY_TOKEN.columns]
    glance = heads_at_a_glance(by_head, controls_by_head(measures, heads), precision_by_head(measures, heads, 4))
    assert glance["head"].to_list() == heads
    assert glance["frequency"].n_unique() == 1
    assert glance["k"].to_list() == [4, 4, 4]


def test_controls_stand_beside_the_mean(answered) -> None:
    _, _, measures = answered
    table = controls_by_head(measures, [0, 1, 2])
    for name in ("shuffled_queries", "permuted_keys"):
        assert table[name].to_list() == pytest.approx(np.nanmean(getattr(measures, name)[..., AUROC], axis=1).tolist())
    nulls = np.maximum(table["shuffled_queries"], table["permuted_keys"])
    np.testing.assert_allclose(table["above_null"], table["auroc"] - nulls)
    np.testing.assert_allclose(table["above_frequency"], table["auroc"] - table["frequency"])


def test_the_curve_is_scikit_learns_and_its_area_the_auroc(answered) -> None:
    affinity, positives, measures = answered
    token = int(np.argsort(positives.sizes)[VOCAB_SIZE // 2])
    points = roc_points(affinity, [0, 1, 2], positives, token, "some")
    keys, weights = positives.of(token)
    right, weight = np.zeros(VOCAB_SIZE), np.ones(VOCAB_SIZE)
    right[keys], weight[keys] = 1, weights
    for head, scores in enumerate(scores_of(affinity, token)):
        curve = points.filter(head=head)
        false_rate, true_rate, thresholds = roc_curve(right, scores, sample_weight=weight, drop_intermediate=False)
        ours = curve.select("false_positive_rate", "true_positive_rate").to_numpy()
        for rate, own_rate in ((false_rate, ours[:, 0]), (true_rate, ours[:, 1])):
            np.testing.assert_allclose(np.interp(false_rate + true_rate, ours.sum(axis=1), own_rate), rate, atol=1e-12)
        assert set(curve["threshold"][1:]) <= set(thresholds)
        assert len(curve) <= len(thresholds)
        assert curve["threshold"][0] is None
        area = np.trapezoid(curve["true_positive_rate"], curve["false_positive_rate"])
        assert area == pytest.approx(measures.heads[head, token, AUROC], abs=1e-12)


def test_a_token_without_positives_has_no_curve(answered) -> None:
    affinity, positives, _ = answered
    token = int(np.argmin(positives.sizes))
    with pytest.raises(TokenError, match="has 0 positives"):
        roc_points(affinity, [0, 1, 2], positives, token, "none")

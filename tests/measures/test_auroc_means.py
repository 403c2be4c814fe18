"""Means over query tokens with their intervals, and the points of a token's curve."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest
from sklearn.metrics import roc_curve

from detoklens.kernels.ranking import AUROC
from detoklens.measures.auroc import RankingOptions, head_means, mean_over_seen, measure_heads, roc_curves
from detoklens.measures.positives import from_pairs
from detoklens.measures.ranking import scores_of
from detoklens.scores.affinity import Affinity
from tests.measures.auroc_oracle import random_affinity, random_positives

VOCAB_SIZE = 90


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


def test_a_mean_over_seen_tokens_is_undefined_where_nothing_is_seen() -> None:
    means = mean_over_seen(np.array([[0.5, np.nan, 1.0], [np.nan] * 3]))
    np.testing.assert_array_equal(means, [0.75, np.nan])


def test_the_curve_is_scikit_learns_and_its_area_the_auroc() -> None:
    affinity, positives = random_affinity(3, VOCAB_SIZE, 2, 1, whole=True), random_positives(VOCAB_SIZE, 1)
    token = int(np.argsort(positives.sizes)[VOCAB_SIZE // 2])
    measures = measure_heads(affinity, positives, [token], options=RankingOptions(controls=False))
    keys, weights = positives.of(token)
    right, weight = np.zeros(VOCAB_SIZE), np.ones(VOCAB_SIZE)
    right[keys], weight[keys] = 1, weights
    curves = roc_curves(affinity, positives, token)
    for head, (curve, scores) in enumerate(zip(curves, scores_of(affinity.single(), token), strict=True)):
        false_rate, true_rate, thresholds = roc_curve(right, scores, sample_weight=weight, drop_intermediate=False)
        ours = np.stack([curve["false_positive_rate"], curve["true_positive_rate"]])
        for rate, own_rate in zip((false_rate, true_rate), ours, strict=True):
            np.testing.assert_allclose(np.interp(false_rate + true_rate, ours.sum(axis=0), own_rate), rate, atol=1e-12)
        assert set(curve["threshold"][1:]) <= set(thresholds)
        assert len(curve["threshold"]) <= len(thresholds)
        assert np.isnan(curve["threshold"][0])
        assert np.trapezoid(ours[1], ours[0]) == pytest.approx(measures.heads[head, 0, AUROC], abs=1e-12)


def test_a_curve_has_points_only_where_it_bends() -> None:
    scores = np.array([6, 5, 4, 3, 2, 1], np.float32)
    positives = from_pairs([(0, 0), (0, 1), (0, 4)], 6)
    (curve,) = roc_curves(Affinity(np.ones((1, 6, 1), np.float32), scores[None, :, None]), positives, 0)
    np.testing.assert_array_equal(curve["threshold"], [np.nan, 5, 3, 2, 1])
    np.testing.assert_allclose(curve["false_positive_rate"], [0, 0, 2 / 3, 2 / 3, 1])
    np.testing.assert_allclose(curve["true_positive_rate"], [0, 2 / 3, 2 / 3, 1, 1])


def test_intervals_hold_the_known_auroc_as_often_as_they_say() -> None:
    """200 corpora, each of 150 query tokens with one to three positives: scores one standard deviation above others.

    The AUROC of every query token is then Φ(1/√2) in the mean. Of 200 intervals of 95 % some 190 hold it; five standard
    deviations of that number are 15.
    """
    known, held = NormalDist().cdf(1 / np.sqrt(2)), 0
    for seed in range(200):
        random = np.random.default_rng(seed)
        size = 150
        keys = [random.choice(size, random.integers(1, 4), replace=False) for _ in range(size)]
        positives = from_pairs(((query, int(key)) for query in range(size) for key in keys[query]), size)
        scores = random.standard_normal((size, size)).astype(np.float32)
        scores[np.repeat(np.arange(size), positives.sizes), positives.keys] += 1
        identity = np.eye(size, dtype=np.float32)
        affinity = Affinity(identity[None], np.ascontiguousarray(scores.T)[None])
        measured = measure_heads(affinity, positives, range(size), options=RankingOptions(controls=False))
        seen = head_means(measured.heads[..., AUROC], positives.totals, 400, seed).seen
        held += seen.low[0] <= known <= seen.high[0]
    assert 175 <= held <= 200

"""Ranks without sorting: the compiled loops against scikit-learn and plain numpy, ties and far scores included."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from detoklens.kernels import count_below as below
from detoklens.kernels import ranking

KINDS = ("plain", "quantised", "constant", "two values", "one far score", "tiny", "huge", "signed zeros")


def scores_of_kind(kind: str, n_rows: int, n_keys: int, random: np.random.Generator) -> np.ndarray:
    scores = random.standard_normal((n_rows, n_keys))
    match kind:
        case "quantised":
            scores = np.round(3 * scores) / 3
        case "constant":
            scores[:] = -1.25
        case "two values":
            scores = np.sign(scores)
        case "one far score":
            scores[:, random.integers(n_keys)] = 1e30
        case "tiny":
            scores *= 1e-42
        case "huge":
            scores = np.clip(scores * 1e38, -3e38, 3e38)
        case "signed zeros":
            scores = np.where(scores > 0, 0.0, -0.0)
    return scores.astype(np.float32)


def random_positives(n_rows: int, n_keys: int, random: np.random.Generator) -> tuple[np.ndarray, ...]:
    sizes = random.choice([0, 1, n_keys // 2, n_keys - 1, n_keys, random.integers(n_keys + 1)], n_rows)
    keys = [random.choice(n_keys, size, replace=False) for size in sizes]
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    return indptr, np.concatenate(keys).astype(np.uint32), random.integers(1, 10**6, indptr[-1])


def all_cells(scores, indptr, keys, weights, columns=None, bounds=None, k=5, others=(), exchanged=False) -> np.ndarray:
    """cell × row × measure"""
    n_rows, n_keys = scores.shape
    measures = np.full((ranking.CELLS, n_rows, ranking.MEASURES), -1.0)
    columns = np.arange(n_keys) if columns is None else columns
    bounds = np.array([0, n_keys]) if bounds is None else bounds
    strata = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    rows, others, none = np.arange(n_rows), np.array(others, np.int64), np.empty((0, n_rows), np.int64)
    positives = (indptr, columns[keys].astype(np.int32), weights)
    options = (True, exchanged, False, 7, k)
    no_shift, no_aurocs = np.empty(0, np.float32), np.empty((0, n_rows))
    ranking.measure_rows(
        scores, rows, no_shift, rows, others, none, *positives, bounds, strata, *options, measures, no_aurocs
    )
    return measures


def measured(scores, indptr, keys, weights, k=5) -> np.ndarray:
    """row × measure, against all keys"""
    found = all_cells(scores, indptr, keys, weights, k=k)
    np.testing.assert_allclose(found[ranking.MATCHED], found[ranking.OWN], rtol=0, atol=1e-15)  # one stratum
    assert np.isnan(found[[ranking.OTHER_QUERY, ranking.EXCHANGED]]).all()
    return found[ranking.OWN]


def labels(n_keys: int, keys: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    right, weight = np.zeros(n_keys), np.ones(n_keys)
    right[keys], weight[keys] = 1, weights
    return right, weight


@settings(max_examples=80)
@given(st.sampled_from(KINDS), st.integers(2, 500), st.integers(0, 2**32 - 1))
def test_equals_scikit_learn(kind: str, n_keys: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    scores = scores_of_kind(kind, 4, n_keys, random)
    indptr, keys, weights = random_positives(4, n_keys, random)
    for row, found in enumerate(measured(scores, indptr, keys, weights)):
        own = slice(indptr[row], indptr[row + 1])
        if len(keys[own]) in (0, n_keys):
            assert np.isnan(found).all()
            continue
        right, weight = labels(n_keys, keys[own], weights[own])
        assert found[ranking.AUROC] == pytest.approx(
            roc_auc_score(right, scores[row].astype(float), sample_weight=weight), abs=1e-9
        )
        expected = average_precision_score(right, scores[row].astype(float), sample_weight=weight)
        assert found[ranking.AVERAGE_PRECISION] == pytest.approx(expected, abs=1e-9)


@settings(max_examples=40)
@given(st.sampled_from(KINDS), st.integers(2, 120), st.integers(1, 130), st.integers(0, 2**32 - 1))
def test_precision_at_k_is_the_mean_over_orders_of_ties(kind: str, n_keys: int, k: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    scores = scores_of_kind(kind, 3, n_keys, random)
    indptr, keys, weights = random_positives(3, n_keys, random)
    for row, found in enumerate(measured(scores, indptr, keys, weights, k=k)):
        own = keys[indptr[row] : indptr[row + 1]]
        if len(own) in (0, n_keys):
            continue
        right = labels(n_keys, own, weights[indptr[row] : indptr[row + 1]])[0]
        assert found[ranking.PRECISION_AT_K] == pytest.approx(expected_precision(right, scores[row], k), abs=1e-12)


def expected_precision(right: np.ndarray, scores: np.ndarray, k: int) -> float:
    """Every key is among the first k with the probability that its place within its tie is."""
    k = min(k, len(scores))
    above = (scores[:, None] < scores).sum(axis=1)
    tied = (scores[:, None] == scores).sum(axis=1)
    return float((right * np.clip((k - above) / tied, 0, 1)).sum() / k)


def test_constant_scores_are_chance() -> None:
    random = np.random.default_rng(3)
    indptr, keys, weights = np.array([0, 40]), random.choice(100, 40, replace=False).astype(np.uint32), np.arange(1, 41)
    found = measured(np.full((1, 100), 2.5, np.float32), indptr, keys, weights)[0]
    assert found[ranking.AUROC] == 0.5
    assert found[ranking.AVERAGE_PRECISION] == pytest.approx(found[ranking.CHANCE_AVERAGE_PRECISION], abs=1e-15)
    assert found[ranking.PRECISION_AT_K] == pytest.approx(found[ranking.CHANCE_PRECISION_AT_K], abs=1e-15)
    assert found[ranking.CHANCE_PRECISION_AT_K] == 0.4
    assert found[ranking.CHANCE_AVERAGE_PRECISION] == pytest.approx(820 / 880)


def test_both_ways_of_counting_agree() -> None:
    """Few positives are compared one by one, many by bins: the same counts."""
    random = np.random.default_rng(4)
    row = np.round(random.standard_normal(5000), 2).astype(np.float32)
    for n in (1, 2, below.COMPARED_ONE_BY_ONE, 300):
        positives = np.append(np.unique(random.choice(row, n)), np.float32(0))
        distinct = len(positives) - 1
        *_, between, _, narrow_slots, slots = ranking.working_space(distinct + 1)
        plain, binned = np.empty((2, distinct), np.int64), np.empty((2, distinct), np.int64)
        below.count_by_comparison(row, positives, distinct, plain[0], plain[1])
        for table in (narrow_slots, slots):
            below.count_by_bins(row, positives, distinct, table, between, binned[0], binned[1])
            np.testing.assert_array_equal(plain, binned)
        np.testing.assert_array_equal(plain[0], np.searchsorted(np.sort(row), positives[:-1]))


def test_crowded_bins_are_sorted_too() -> None:
    """One far score puts all others into one bin."""
    random = np.random.default_rng(5)
    scores = np.append(random.standard_normal(20_000), 1e30).astype(np.float32)
    weights = np.arange(len(scores))
    _, sorted_scores, _, _, starts, _, _ = ranking.working_space(len(scores))
    sorted_weights = np.empty(len(scores), np.int64)
    below.sort_with_weights(scores, weights, len(scores), starts, sorted_scores, sorted_weights)
    order = np.argsort(scores, kind="stable")
    np.testing.assert_array_equal(sorted_scores[: len(scores)], scores[order])
    np.testing.assert_array_equal(scores[sorted_weights], scores[order])


@pytest.mark.parametrize("n", [below.MOST_IN_NARROW_SLOTS, below.MOST_IN_NARROW_SLOTS + 1, 40_000])
def test_positives_may_be_more_than_narrow_slots_tell_apart(n: int) -> None:
    random = np.random.default_rng(n)
    row = random.permutation(100_000).astype(np.float32)
    keys = np.sort(random.choice(len(row), n, replace=False)).astype(np.uint32)
    found = measured(row[None], np.array([0, n]), keys, np.ones(n, np.int64))[0, ranking.AUROC]
    negatives = np.sort(np.delete(row, keys))
    assert found == np.searchsorted(negatives, row[keys]).sum() / (n * len(negatives))


@settings(max_examples=25)
@given(st.integers(6, 200), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_within_strata_is_the_weighted_mean_of_each_stratum(n_keys: int, n_strata: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    scores = scores_of_kind("quantised", 3, n_keys, random)
    indptr, keys, weights = random_positives(3, n_keys, random)
    bounds = np.sort(np.concatenate([[0, n_keys], random.choice(n_keys, n_strata - 1)]))
    columns = random.permutation(n_keys)
    cells = all_cells(scores, indptr, keys, weights, columns, bounds)
    for row, found in enumerate(cells[ranking.MATCHED]):
        own = slice(indptr[row], indptr[row + 1])
        right, weight = labels(n_keys, columns[keys[own]], weights[own])
        values, masses = [], []
        for stratum in map(slice, bounds, bounds[1:]):
            if 0 < right[stratum].sum() < len(right[stratum]):
                values.append(roc_auc_score(right[stratum], scores[row, stratum], sample_weight=weight[stratum]))
                masses.append((weight * right)[stratum].sum())
        expected = np.average(values, weights=masses) if values else np.nan
        assert found[ranking.AUROC] == pytest.approx(expected, abs=1e-9, nan_ok=True)


@settings(max_examples=25)
@given(st.sampled_from(KINDS), st.integers(6, 200), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_what_else_is_asked_of_a_row_changes_no_bit(kind: str, n_keys: int, n_strata: int, seed: int) -> None:
    """One reading of a row answers for several sets of positives as if each were asked for alone."""
    random = np.random.default_rng(seed)
    scores = scores_of_kind(kind, 4, n_keys, random)
    indptr, keys, weights = random_positives(4, n_keys, random)
    bounds = np.sort(np.concatenate([[0, n_keys], random.choice(n_keys, n_strata - 1)]))
    others = np.array([1, 2, 3, 0])
    together = all_cells(scores, indptr, keys, weights, bounds=bounds, others=others, exchanged=True)
    alone = all_cells(scores, indptr, keys, weights, bounds=bounds)
    lent = all_cells(scores[[3, 0, 1, 2]], indptr, keys, weights, bounds=bounds)
    for cell in (ranking.OWN, ranking.MATCHED + ranking.OWN):
        np.testing.assert_array_equal(together[cell], alone[cell])
        np.testing.assert_array_equal(together[cell + ranking.OTHER_QUERY][[3, 0, 1, 2]], lent[cell])
    assert (np.isnan(together[ranking.EXCHANGED]) == np.isnan(alone[ranking.OWN])).all()

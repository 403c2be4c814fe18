"""Controls of the AUROC: nulls, the frequency baseline and matched negatives, each against its plain meaning."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detoklens.analyses.auroc import Judging, controls_by_head, measure_heads
from detoklens.analyses.auroc.blocks import scores_of
from detoklens.analyses.auroc.frequency import (
    FEWEST_IN_STRATUM,
    columns_by_stratum,
    frequency_ranks,
    frequency_strata,
    next_in_circle,
    permuted_within,
)
from detoklens.kernels.ranking import AUROC
from tests.analyses.auroc_oracle import auroc_of, random_affinity, random_counts, random_positives

VOCAB_SIZE = 150


@pytest.fixture(scope="module")
def measured():
    affinity, positives = random_affinity(2, VOCAB_SIZE, 4, 1), random_positives(VOCAB_SIZE, 1)
    counts = random_counts(VOCAB_SIZE, 1)
    return (
        affinity,
        positives,
        counts,
        measure_heads(affinity, positives, np.arange(VOCAB_SIZE), counts, Judging(seed=5)),
    )


def test_shuffled_queries_are_scored_by_another_tokens_row(measured) -> None:
    affinity, positives, _, measures = measured
    seen = np.flatnonzero(positives.sizes)
    another = next_in_circle(seen, np.random.default_rng(5))
    assert (another != seen).all()
    for lender, token in zip(seen, another, strict=True):
        expected = [auroc_of(scores, *positives.of(token)) for scores in scores_of(affinity, lender)]
        np.testing.assert_allclose(measures.shuffled_queries[:, token, AUROC], expected, atol=1e-9)


def test_permuted_keys_stand_for_equally_frequent_ones(measured) -> None:
    affinity, positives, counts, measures = measured
    stand_in = permuted_within(frequency_strata(counts), seed=5)
    for token in range(VOCAB_SIZE):
        keys, weights = positives.of(token)
        expected = [auroc_of(scores, stand_in[keys], weights) for scores in scores_of(affinity, token)]
        np.testing.assert_allclose(measures.permuted_keys[:, token, AUROC], expected, atol=1e-9)


def test_the_frequency_baseline_ranks_keys_by_their_count(measured) -> None:
    _, positives, counts, measures = measured
    expected = [auroc_of(counts, *positives.of(token)) for token in range(VOCAB_SIZE)]
    np.testing.assert_allclose(measures.frequency[:, AUROC], expected, atol=1e-9)


def test_matched_negatives_are_of_the_same_stratum() -> None:
    affinity, positives = random_affinity(2, VOCAB_SIZE, 4, 2), random_positives(VOCAB_SIZE, 2)
    counts = random_counts(VOCAB_SIZE, 2)
    strata = frequency_strata(counts)
    assert strata.max() > 1
    measures = measure_heads(affinity, positives, np.arange(VOCAB_SIZE), counts, Judging(matched=True))
    for token in range(0, VOCAB_SIZE, 3):
        for head, scores in enumerate(scores_of(affinity, token)):
            expected = mean_over_strata(scores, *positives.of(token), strata)
            assert measures.heads[head, token, AUROC] == pytest.approx(expected, abs=1e-9, nan_ok=True)


def mean_over_strata(scores: np.ndarray, keys: np.ndarray, weights: np.ndarray, strata: np.ndarray) -> float:
    values, masses = [], []
    for stratum in range(strata.max() + 1):
        members = np.flatnonzero(strata == stratum)
        inside = np.isin(keys, members)
        value = auroc_of(scores[members], np.searchsorted(members, keys[inside]), weights[inside])
        if not np.isnan(value):
            values.append(value)
            masses.append(weights[inside].sum())
    return float(np.average(values, weights=masses)) if values else np.nan


def test_without_token_counts_only_the_query_null_is_there() -> None:
    affinity, positives = random_affinity(2, 40, 3, 3), random_positives(40, 3)
    measures = measure_heads(affinity, positives, np.arange(40))
    table = controls_by_head(measures, [0, 1])
    assert table["shuffled_queries"].null_count() == 0
    assert table["permuted_keys"].null_count() == table["frequency"].null_count() == 2
    np.testing.assert_allclose(table["above_null"], table["auroc"] - table["shuffled_queries"])


def test_a_head_that_prefers_the_same_keys_for_all_is_no_better_than_its_null() -> None:
    """Keys with a fixed order of preference: whoever asks, the scores are the same."""
    affinity, positives = random_affinity(1, 200, 3, 4), random_positives(200, 4)
    affinity.query[:] = affinity.query[:, :1]
    measures = measure_heads(affinity, positives, np.arange(200), random_counts(200, 4))
    np.testing.assert_array_equal(measures.heads[..., AUROC], measures.shuffled_queries[..., AUROC])


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=300))
def test_strata_are_octaves_of_at_least_sixteen_tokens(counts: list[int]) -> None:
    counts = np.array(counts)
    strata = frequency_strata(counts)
    sizes = np.bincount(strata)
    assert (sizes >= min(FEWEST_IN_STRATUM, len(counts))).all()
    assert (np.diff(strata[np.argsort(counts)]) >= 0).all()
    octaves = np.frexp(counts.astype(float))[1]
    for octave in np.unique(octaves):
        assert len(np.unique(strata[octaves == octave])) == 1


def test_full_octaves_are_strata_of_their_own() -> None:
    counts = np.repeat([0, 1, 2, 3, 4, 1000], FEWEST_IN_STRATUM)
    np.testing.assert_array_equal(np.unique(frequency_strata(counts)), range(5))


@settings(max_examples=30)
@given(st.integers(1, 200), st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_keys_move_within_their_stratum_and_none_stays(n_tokens: int, n_strata: int, seed: int) -> None:
    strata = np.random.default_rng(seed).integers(n_strata, size=n_tokens)
    permuted = permuted_within(strata, seed)
    np.testing.assert_array_equal(strata[permuted], strata)
    np.testing.assert_array_equal(np.sort(permuted), np.arange(n_tokens))
    alone = np.bincount(strata, minlength=n_strata)[strata] == 1
    np.testing.assert_array_equal(permuted == np.arange(n_tokens), alone)
    np.testing.assert_array_equal(permuted, permuted_within(strata, seed))
    order, bounds = columns_by_stratum(strata)
    np.testing.assert_array_equal(np.sort(strata), strata[order])
    assert bounds[-1] == n_tokens


def test_ranks_order_counts_that_float32_would_confuse() -> None:
    counts = np.array([2**24, 2**24 + 1, 5, 5, 2**40])
    np.testing.assert_array_equal(frequency_ranks(counts), [1, 2, 0, 0, 3])

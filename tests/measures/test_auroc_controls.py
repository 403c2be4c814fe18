"""Controls of the AUROC: nulls, the frequency baseline and matched negatives, each against its plain meaning."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster.vq import kmeans2

from detoklens.kernels.ranking import AUROC
from detoklens.measures.auroc import RankingOptions, measure_heads, next_in_circle
from detoklens.measures.positives import (
    CLUSTER_SIZE,
    DERANGEMENTS,
    FEWEST_BIGRAMS,
    FEWEST_CLUSTERS,
    FEWEST_IN_STRATUM,
    UNGROUPED,
    Positives,
    derange_within,
    distant_rows,
    exchange_groups,
    frequency_ranks,
    frequency_strata,
    from_pairs,
    predecessor_clusters,
)
from detoklens.measures.ranking import scores_of
from tests.measures.auroc_oracle import auroc_of, random_affinity, random_counts, random_positives

VOCAB_SIZE = 150


@pytest.fixture(scope="module")
def measured():
    affinity, positives = random_affinity(2, VOCAB_SIZE, 4, 1), random_positives(VOCAB_SIZE, 1)
    counts = random_counts(VOCAB_SIZE, 1)
    return (
        affinity,
        positives,
        counts,
        measure_heads(affinity, positives, np.arange(VOCAB_SIZE), counts, RankingOptions(seed=5)),
    )


def test_shuffled_queries_are_scored_by_another_tokens_row(measured) -> None:
    affinity, positives, _, measures = measured
    seen = np.flatnonzero(positives.sizes)
    another = next_in_circle(seen, np.random.default_rng(5))
    assert (another != seen).all()
    for lender, token in zip(seen, another, strict=True):
        expected = [auroc_of(scores, *positives.of(token)) for scores in scores_of(affinity, lender)]
        np.testing.assert_allclose(measures.shuffled_queries[:, token, AUROC], expected, atol=1e-9)


@pytest.mark.parametrize("matched", [False, True])
def test_the_within_class_null_is_the_mean_over_rows_of_the_same_class_and_frequency(measured, matched) -> None:
    affinity, positives, counts, plain = measured
    classes, seen = np.random.default_rng(0).integers(3, size=VOCAB_SIZE), np.flatnonzero(positives.sizes)
    alone = int(seen[7])
    classes[alone] = 3
    options, tokens = RankingOptions(seed=5, matched=matched), np.arange(VOCAB_SIZE)
    ungrouped = np.full(VOCAB_SIZE, UNGROUPED)
    groups = {"nobody": ungrouped, "within_class": classes}
    measures = measure_heads(affinity, positives, tokens, counts, options, groups=groups)
    partners = seen[derange_within(exchange_groups(classes, counts)[seen], DERANGEMENTS, np.random.default_rng([5, 1]))]
    kept = seen[(partners[0] != seen)][::20]
    for token in kept:
        lenders = [int(seen[draw == token][0]) for draw in partners]
        assert token not in lenders
        rows = np.array([scores_of(affinity, lender) for lender in lenders])
        found = [[_within(scores, positives, token, counts, matched) for scores in row] for row in rows]
        np.testing.assert_allclose(measures.within["within_class"][:, token], np.mean(found, axis=0), atol=1e-9)
    assert np.isnan(measures.within["within_class"][:, [alone, *np.flatnonzero(positives.sizes == 0)]]).all()
    assert np.isnan(measures.within["nobody"]).all()
    expected = plain.matched if matched else plain
    np.testing.assert_array_equal(measures.shuffled_queries, expected.shuffled_queries)
    assert plain.within == {}


def _within(scores: np.ndarray, positives: Positives, token: int, counts: np.ndarray, matched: bool) -> float:
    given = (scores, *positives.of(token))
    return mean_over_strata(*given, frequency_strata(counts)) if matched else auroc_of(*given)


@given(st.lists(st.integers(UNGROUPED, 5), max_size=60), st.integers(0, 2**32 - 1))
def test_a_derangement_stays_within_its_group_and_leaves_nobody_in_place(groups: list[int], seed: int) -> None:
    groups = np.array(groups, np.int64)
    sizes = np.bincount(groups + 1, minlength=7)
    sizes[0] = 1
    for places in derange_within(groups, 3, np.random.default_rng(seed)):
        assert sorted(places) == list(range(len(groups)))
        np.testing.assert_array_equal(groups[places], groups)
        np.testing.assert_array_equal(places == np.arange(len(groups)), sizes[groups + 1] == 1)


@given(st.lists(st.tuples(st.integers(UNGROUPED, 2), st.integers(0, 5000)), min_size=1, max_size=150))
def test_groups_are_frequency_bands_of_one_class(tokens: list[tuple[int, int]]) -> None:
    classes, counts = np.array(tokens).T
    groups = exchange_groups(classes, counts)
    np.testing.assert_array_equal(groups == UNGROUPED, classes == UNGROUPED)
    for group in np.unique(groups[groups != UNGROUPED]):
        members = groups == group
        assert len(np.unique(classes[members])) == 1
        own = classes == classes[members][0]
        assert counts[members].min() > 0 or counts[members].max() == 0
        assert counts[members].max() == 0 or members.sum() >= min(FEWEST_IN_STRATUM, (counts[own] > 0).sum())
    np.testing.assert_array_equal(exchange_groups(classes, None), classes)


def test_clusters_start_where_kmeans_plus_plus_starts() -> None:
    rows = np.random.default_rng(0).standard_normal((300, 5))
    plain = kmeans2(rows, 20, iter=3, minit="++", seed=np.random.default_rng(4))
    ours = kmeans2(rows, distant_rows(rows, 20, np.random.default_rng(4)), 3, minit="matrix")
    for expected, found in zip(plain, ours, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_tokens_with_the_same_predecessors_are_one_cluster() -> None:
    kinds = np.arange(200) % 4
    pairs = [(query, key) for query in range(200) for key in range(50 * kinds[query], 50 * kinds[query] + 50)]
    pairs += [(204, key) for key in range(FEWEST_BIGRAMS - 1)]
    clusters = predecessor_clusters(from_pairs(pairs, 210), 3)
    assert (clusters[200:] == UNGROUPED).all()
    assert (clusters[:200] != UNGROUPED).all()
    for cluster in np.unique(clusters[:200]):
        assert len(np.unique(kinds[clusters[:200] == cluster])) == 1
    np.testing.assert_array_equal(clusters, predecessor_clusters(from_pairs(pairs, 210), 3))
    few = [(query, key) for query in range(FEWEST_CLUSTERS * CLUSTER_SIZE - 1) for key in range(50)]
    assert (predecessor_clusters(from_pairs(few, 210), 0) == UNGROUPED).all()


def expected_with_keys_exchanged(
    scores: np.ndarray, keys: np.ndarray, weights: np.ndarray, strata: np.ndarray
) -> float:
    """The mean over all exchanges of keys within strata, in closed form.

    A pair of one stratum is won half of the time; of two strata, as often as a member of one beats one of the other.
    """
    if not 0 < len(keys) < len(scores):
        return np.nan
    members = [scores[strata == stratum] for stratum in range(strata.max() + 1)]
    mass = np.bincount(strata[keys], weights, len(members))
    negatives = np.bincount(strata, minlength=len(members)) - np.bincount(strata[keys], minlength=len(members))
    won = [[(np.sign(a[:, None] - b).mean() + 1) / 2 for b in members] for a in members]
    return float(mass @ won @ negatives / (mass.sum() * negatives.sum()))


def test_permuted_keys_are_right_in_the_mean(measured) -> None:
    """Over 200 seeds the mean of each query comes within five standard errors of the closed form."""
    affinity, positives, counts, _ = measured
    strata = frequency_strata(counts)
    tokens = np.flatnonzero((positives.sizes > 0) & (positives.sizes < VOCAB_SIZE))[:40]
    drawn = np.stack(
        [
            measure_heads(affinity, positives, tokens, counts, RankingOptions(seed=seed)).permuted_keys[..., AUROC]
            for seed in range(200)
        ]
    )
    expected = np.array(
        [
            [
                expected_with_keys_exchanged(scores_of(affinity, token)[head], *positives.of(token), strata)
                for token in tokens
            ]
            for head in range(2)
        ]
    )
    errors = drawn.std(axis=0) / np.sqrt(len(drawn))
    assert (abs(drawn.mean(axis=0) - expected) <= 5 * errors + 1e-12).all()


def test_permuted_keys_are_drawn_anew_for_every_query() -> None:
    """Queries with the same scores and the same positives: one draw for all would give each the same null."""
    affinity, counts = random_affinity(1, VOCAB_SIZE, 4, 6), random_counts(VOCAB_SIZE, 6)
    affinity.query[:] = affinity.query[:, :1]
    keys = np.random.default_rng(6).choice(VOCAB_SIZE, 5, replace=False).tolist()
    positives = from_pairs([(query, key) for query in range(VOCAB_SIZE) for key in keys], VOCAB_SIZE)
    drawn = measure_heads(affinity, positives, range(VOCAB_SIZE), counts).permuted_keys[0, :, AUROC]
    assert len(np.unique(drawn)) > VOCAB_SIZE / 2
    expected = expected_with_keys_exchanged(scores_of(affinity, 0)[0], *positives.of(0), frequency_strata(counts))
    assert abs(drawn.mean() - expected) < 4 * drawn.std() / np.sqrt(VOCAB_SIZE)


def test_exchanged_within_strata_and_judged_within_strata_is_a_half(measured) -> None:
    *_, measures = measured
    null = measures.matched.permuted_keys[..., AUROC]
    np.testing.assert_array_equal(np.isnan(null), np.isnan(measures.matched.heads[..., AUROC]))
    assert (null[~np.isnan(null)] == 0.5).all()


def test_the_frequency_baseline_ranks_keys_by_their_count(measured) -> None:
    _, positives, counts, measures = measured
    expected = [auroc_of(counts, *positives.of(token)) for token in range(VOCAB_SIZE)]
    np.testing.assert_allclose(measures.frequency[:, AUROC], expected, atol=1e-9)


def test_matched_negatives_are_of_the_same_stratum() -> None:
    affinity, positives = random_affinity(2, VOCAB_SIZE, 4, 2), random_positives(VOCAB_SIZE, 2)
    counts = random_counts(VOCAB_SIZE, 2)
    strata = frequency_strata(counts)
    assert strata.max() > 1
    measures = measure_heads(affinity, positives, np.arange(VOCAB_SIZE), counts, RankingOptions(matched=True))
    for token in range(0, VOCAB_SIZE, 3):
        for head, scores in enumerate(scores_of(affinity, token)):
            expected = mean_over_strata(scores, *positives.of(token), strata)
            assert measures.heads[head, token, AUROC] == pytest.approx(expected, abs=1e-9, nan_ok=True)
    assert measures.n_strata == strata.max() + 1


def test_matched_negatives_stand_beside_all_of_them(measured) -> None:
    affinity, positives, counts, measures = measured
    asked = measure_heads(affinity, positives, np.arange(VOCAB_SIZE), counts, RankingOptions(seed=5, matched=True))
    for name in ("heads", "shuffled_queries", "permuted_keys", "frequency"):
        np.testing.assert_array_equal(getattr(asked, name), getattr(measures.matched, name), err_msg=name)
        np.testing.assert_array_equal(getattr(asked.matched, name), getattr(measures.matched, name), err_msg=name)
    assert np.nanmax(abs(asked.heads - measures.heads)[..., AUROC]) > 0.01


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
    assert measures.shuffled_queries is not None
    assert measures.permuted_keys is measures.frequency is None


def test_a_head_that_prefers_the_same_keys_for_all_is_no_better_than_its_null() -> None:
    """Keys with a fixed order of preference: whoever asks, the scores are the same."""
    affinity, positives = random_affinity(1, 200, 3, 4), random_positives(200, 4)
    affinity.query[:] = affinity.query[:, :1]
    measures = measure_heads(affinity, positives, np.arange(200), random_counts(200, 4))
    np.testing.assert_array_equal(measures.heads[..., AUROC], measures.shuffled_queries[..., AUROC])


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=300), st.sampled_from([1, 2, 4]))
def test_strata_are_parts_of_octaves_of_at_least_sixteen_tokens(counts: list[int], per_octave: int) -> None:
    counts = np.array(counts)
    strata = frequency_strata(counts, per_octave)
    sizes = np.bincount(strata[counts > 0])
    assert (sizes[sizes > 0] >= min(FEWEST_IN_STRATUM, (counts > 0).sum())).all()
    assert (np.diff(strata[np.argsort(counts)]) >= 0).all()
    assert set(np.unique(strata)) == set(range(strata.max() + 1))
    parts = np.floor(np.log2(np.maximum(counts, 1)) * per_octave + 1e-9)
    for part in np.unique(parts[counts > 0]):
        assert len(np.unique(strata[(parts == part) & (counts > 0)])) == 1


def test_tokens_never_seen_are_alone_however_few() -> None:
    counts = np.append(np.repeat([1, 2], 20), [0, 0])
    np.testing.assert_array_equal(frequency_strata(counts), np.append(np.repeat([1, 2], 20), [0, 0]))
    np.testing.assert_array_equal(frequency_strata(np.array([0, 3, 0])), [0, 1, 0])
    np.testing.assert_array_equal(frequency_strata(np.zeros(30, np.int64)), np.zeros(30))


def test_full_octaves_are_strata_of_their_own() -> None:
    counts = np.repeat([0, 1, 2, 3, 4, 1000], FEWEST_IN_STRATUM)
    np.testing.assert_array_equal(np.unique(frequency_strata(counts)), range(5))


def test_quarter_octaves_bring_matched_frequency_to_a_half() -> None:
    """Positives are drawn by frequency alone: the finer the strata, the less of it is left."""
    random, size = np.random.default_rng(3), 4000
    counts = (2 ** np.linspace(6, 14, size)).astype(np.int64)
    pairs = [(query, key) for query in range(60) for key in set(random.choice(size, 40, p=counts / counts.sum()))]
    positives, flat = from_pairs(pairs, size), random_affinity(1, size, 2, 3)

    def frequency(per_octave: int) -> float:
        options = RankingOptions(per_octave=per_octave)
        return np.nanmean(measure_heads(flat, positives, range(60), counts, options).matched.frequency[:, AUROC])

    octaves, quarters = frequency(1), frequency(4)
    assert octaves > 0.55
    assert quarters - 0.5 < (octaves - 0.5) / 2.5


def test_ranks_order_counts_that_float32_would_confuse() -> None:
    counts = np.array([2**24, 2**24 + 1, 5, 5, 2**40])
    np.testing.assert_array_equal(frequency_ranks(counts), [1, 2, 0, 0, 3])

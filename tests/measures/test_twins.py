"""Ranks equal a brute-force search; nulls and intervals are what they are said to be; chains spell their word."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import detoklens as dl
from detoklens.measures.chance import FEWEST_WORDS
from detoklens.measures.ranking import HeadScores
from detoklens.measures.twins import (
    Candidates,
    Chains,
    chains,
    exchanged_first,
    merge_splits,
    rank_measures,
    standardised,
    text_splits,
)


def plainly_standardised(vectors: np.ndarray) -> np.ndarray:
    deviation = vectors.std(axis=0)
    scaled = np.where(deviation > 0, (vectors - vectors.mean(axis=0)) / np.where(deviation > 0, deviation, 1), 0)
    clipped = np.clip(scaled, -5, 5)
    length = np.linalg.norm(clipped, axis=1, keepdims=True)
    return clipped / np.where(length > 0, length, 1)


def test_a_side_is_standardised_clipped_and_of_length_one():
    vectors = np.random.default_rng(0).normal(size=(400, 7)) * [1, 10, 1e4, 0.1, 1, 1, 0] + 3
    vectors[5, 0] = 1e6
    ours = standardised(vectors)
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, plainly_standardised(vectors), atol=1e-6)
    assert abs(ours[5, 0] / ours[5, 1]) == pytest.approx(
        5 / abs((vectors[:, 1] - vectors[:, 1].mean()) / vectors[:, 1].std())[5]
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_candidates_in_place_rank_to_the_bit_as_others(dtype, monkeypatch):
    """In blocks as well: the deviations are those of numpy's `std`."""
    monkeypatch.setattr("detoklens.measures.twins.BLOCK_BYTES", 8 * 33 * 50)
    random = np.random.default_rng(4)
    there = (random.normal(size=(171, 33)) * random.lognormal(size=33) + 3).astype(dtype)
    words, twins = random.normal(size=(40, 33)).astype(dtype), random.integers(171, size=40)
    mean, deviation = (each(there, axis=0, dtype=np.float64) for each in (np.mean, np.std))
    clipped = np.clip((there - mean) * (1 / deviation), -5, 5)
    plain = (clipped / np.sqrt(np.einsum("rd,rd->r", clipped, clipped))[:, None]).astype(np.float32)
    np.testing.assert_array_equal(standardised(there), plain)
    padded = np.concatenate([there, np.zeros((192 - 171, 33), dtype)])
    found = Candidates.in_place(padded, 171)
    np.testing.assert_array_equal(found.scores.rows(plain[:7]), HeadScores.of(plain).rows(plain[:7]))
    np.testing.assert_array_equal(found.ranks(words, twins), Candidates.of(there).ranks(words, twins))


@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(1, 90), st.integers(1, 20), st.integers(1, 3))
def test_ranks_equal_a_brute_force_search(seed, n_words, n_candidates, dimensions, threads):
    """Of small whole numbers every product is exact, so that every tie is one."""
    random = np.random.default_rng(seed)
    there = random.integers(-3, 4, (n_candidates, dimensions)).astype(np.float32)
    words = random.integers(-3, 4, (n_words, dimensions)).astype(np.float32)
    twins = random.integers(n_candidates, size=n_words)
    ranks = Candidates(HeadScores.of(there)).ranks_by_direction(words, twins, threads)
    for word, twin in enumerate(twins):
        scores = there @ words[word]
        order = sorted(range(n_candidates), key=lambda place: (-scores[place], place))
        assert ranks[word] == 1 + order.index(twin)


def test_ranks_in_many_blocks_equal_a_brute_force_search(monkeypatch):
    random = np.random.default_rng(3)
    there, words = random.normal(size=(701, 33)), random.normal(size=(97, 33)) + random.normal(size=33)
    twins = random.integers(701, size=97)
    once = Candidates.of(there).ranks(words, twins)
    cosines = plainly_standardised(words) @ plainly_standardised(there).T
    np.testing.assert_array_equal(once, 1 + (cosines > cosines[np.arange(97), twins][:, None]).sum(axis=1))
    monkeypatch.setattr("detoklens.measures.twins.RANKED_AT_ONCE", 12)
    np.testing.assert_array_equal(Candidates.of(there).ranks(words, twins, threads=3), once)


@pytest.mark.parametrize("seed", range(5))
def test_the_null_gives_every_word_the_first_piece_of_another(seed):
    pieces = np.random.default_rng(seed).integers(8, size=(50, 3))
    exchanged = exchanged_first(pieces, seed)
    np.testing.assert_array_equal(exchanged[:, 1:], pieces[:, 1:])
    assert (exchanged[:, 0] != pieces[:, 0]).all()
    np.testing.assert_array_equal(np.sort(exchanged[:, 0]), np.sort(pieces[:, 0]))
    np.testing.assert_array_equal(exchanged, exchanged_first(pieces, seed))
    assert (exchanged != exchanged_first(pieces, seed + 1)).any()


def test_where_there_is_no_other_piece_the_first_stays():
    np.testing.assert_array_equal(exchanged_first(np.array([[1, 2], [1, 3]]), 0), [[1, 2], [1, 3]])


def test_a_summary_equals_its_plain_meaning():
    ranks = np.array([[1, 5, 10, 40], [2, 20, 10, 11]])
    found = rank_measures(ranks, resamples=50)
    np.testing.assert_allclose(found["median_rank"].value, [7.5, 10.5])
    np.testing.assert_allclose(found["first"].value, [0.25, 0])
    np.testing.assert_allclose(found["first_ten"].value, [0.75, 0.5])
    np.testing.assert_allclose(
        found["mean_reciprocal_rank"].value, [(1 + 0.2 + 0.1 + 0.025) / 4, (0.5 + 0.05 + 0.1 + 1 / 11) / 4]
    )
    np.testing.assert_allclose(found["rank_lost"].value, [0, 3])
    np.testing.assert_allclose(found["rank_ratio"].value, [1, (2 * 4 * 1 * 11 / 40) ** 0.25])
    assert np.isnan(found["median_rank"].low).all(), "four words have no interval"


def test_intervals_are_those_of_resampled_words():
    ranks = np.random.default_rng(0).integers(1, 500, size=(3, FEWEST_WORDS + 7))
    found = rank_measures(ranks, resamples=40, seed=5)
    random, samples = np.random.default_rng(5), []
    for _ in range(40):
        drawn = ranks[:, random.integers(ranks.shape[1], size=ranks.shape[1])]
        medians, logarithms = np.median(drawn, axis=1), np.log(drawn)
        ratio = np.exp((logarithms - logarithms[0]).mean(axis=1))
        shares = [(drawn == 1).mean(axis=1), (drawn <= 10).mean(axis=1), (1 / drawn).mean(axis=1)]
        samples.append([medians, *shares, medians - medians[0], ratio])
    low, high = np.quantile(samples, [0.025, 0.975], axis=0)
    for place, measured in enumerate(found.values()):
        np.testing.assert_allclose(measured.low, low[place], atol=1e-12)
        np.testing.assert_allclose(measured.high, high[place], atol=1e-12)
    assert np.isnan(rank_measures(ranks, resamples=0)["median_rank"].low).all()


@pytest.mark.parametrize("pieces", [2, 3, 4])
def test_chains_spell_their_word_and_keep_its_last_piece(pieces):
    vocabulary = dl.load("demo").vocabulary
    splits = merge_splits(vocabulary)
    found, shorter = chains(splits, splits, pieces), chains(splits, splits, 2)
    last_piece = dict(zip(shorter.whole.tolist(), shorter.pieces[:, -1].tolist(), strict=True))
    assert len(found) > 1000
    for chain, whole in zip(found.pieces.tolist(), found.whole.tolist(), strict=True):
        assert len(chain) == pieces
        assert vocabulary.join(chain) == vocabulary.text(whole)
        assert chain[-1] == last_piece[whole]


def test_a_sample_is_drawn_by_the_seed():
    some = Chains(np.arange(40).reshape(20, 2), np.arange(20))
    assert len(some.sample(7, 0)) == 7
    np.testing.assert_array_equal(some.sample(7, 0).whole, some.sample(7, 0).whole)
    assert (some.sample(7, 0).whole != some.sample(7, 1).whole).any()
    np.testing.assert_array_equal(some.sample(99, 0).whole, some.whole)


def test_a_word_piece_vocabulary_is_split_by_text(minilm_folder):
    vocabulary = dl.load(minilm_folder).vocabulary
    assert merge_splits(vocabulary) == {}
    splits = text_splits(vocabulary)
    whole = vocabulary.id("playing")
    assert [vocabulary.raw(piece) for piece in splits[whole]] == ["play", "##ing"]
    for token, (first, last) in splits.items():
        assert vocabulary.raw(first) + vocabulary.raw(last).removeprefix("##") == vocabulary.raw(token)

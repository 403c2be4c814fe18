"""The controls: the null stays within its class, and the additive control equals its plain formula."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import detoklens as dl
from detoklens.measures.token_classes import exchange_classes
from detoklens.measures.twins import (
    PARTNERS,
    Chains,
    ClosedWorld,
    add_means,
    exchanged_first,
    mean_over_partners,
    partner_texts,
    partner_words,
    shares_lost,
)
from tests.layers import random_layer

pieces_of = st.builds(
    lambda seed, words, pieces, tokens: np.random.default_rng(seed).integers(tokens, size=(words, pieces)),
    st.integers(0, 2**32 - 1),
    st.integers(1, 60),
    st.integers(2, 4),
    st.integers(1, 30),
)


@given(pieces_of, st.integers(0, 99), st.integers(1, 6))
@settings(deadline=None)
def test_the_null_draws_another_first_piece_from_the_same_class_where_there_is_one(pieces, seed, n_classes):
    first = pieces[:, 0]
    fine, coarse = first % n_classes, first % 2
    exchanged = exchanged_first(pieces, seed, [fine, coarse])
    np.testing.assert_array_equal(exchanged[:, 1:], pieces[:, 1:])
    np.testing.assert_array_equal(exchanged, exchanged_first(pieces, seed, [fine, coarse]))
    for word, given_piece in enumerate(exchanged[:, 0]):
        others = set(first.tolist()) - {first[word]}
        in_fine = {piece for piece in others if piece % n_classes == fine[word]}
        in_coarse = {piece for piece in others if piece % 2 == coarse[word]}
        assert given_piece in (in_fine or in_coarse or others or {first[word]})


def test_a_class_with_a_single_member_draws_from_the_next_class():
    pieces = np.array([[1, 9], [2, 9], [3, 9], [40, 9]])
    fine, coarse = np.array([0, 0, 1, 2]), np.array([0, 0, 0, 1])
    for seed in range(5):
        exchanged = exchanged_first(pieces, seed, [fine, coarse])[:, 0].tolist()
        assert exchanged[:2] == [2, 1]
        assert exchanged[2] in (1, 2)
        assert exchanged[3] in (1, 2, 3)


def test_classes_are_orthography_and_doublings_of_the_token_id():
    vocabulary = dl.load("demo").vocabulary
    ids = [vocabulary.id(text) for text in (" the", "the", " The", "ing", " a")]
    fine, coarse = exchange_classes(vocabulary, np.array(ids))
    the, bare, capital, suffix, short = coarse.tolist()
    assert the == short
    assert bare == suffix
    assert len({the, bare, capital}) == 3
    np.testing.assert_array_equal(fine - coarse, 8 * np.floor(np.log2(np.array(ids) + 1)))


def test_word_piece_marks_count_as_continuation(minilm_folder):
    vocabulary = dl.load(minilm_folder).vocabulary
    _, coarse = exchange_classes(vocabulary, np.array([vocabulary.id("play"), vocabulary.id("##ing")]))
    assert coarse[0] != coarse[1]


@given(pieces_of, st.integers(0, 99))
@settings(deadline=None)
def test_partners_are_other_words_with_other_pieces(pieces, seed):
    partners = partner_words(pieces, seed)
    differs = (pieces[:, None, 0] != pieces[None, :, 0]) & (pieces[:, None, 1:] != pieces[None, :, 1:]).any(axis=2)
    if (differs.sum(axis=1) < PARTNERS).any():
        assert partners is None
        return
    for word, some in enumerate(partners):
        assert len(set(some.tolist())) == PARTNERS
        assert differs[word, some].all()


@pytest.mark.parametrize("n_pieces", [2, 3])
def test_the_additive_control_equals_a_brute_force_computation(n_pieces):
    layer = random_layer(vocab_size=40, n_positions=6)
    world = ClosedWorld.of(layer, (0,), None)
    pieces = np.random.default_rng(1).integers(1, 40, size=(45, n_pieces))
    partners = partner_words(pieces, 3)

    def x(chain: list[int]) -> np.ndarray:
        """The residual stream at the last position, from the whole text's attention."""
        text = [0, *chain]
        stream = layer.weights.token_embeddings[text[-1]] + layer.weights.position_embeddings[len(text) - 1]
        return stream + layer.attention_output(text)[-1]

    ours = world.additive(pieces, partners, "attention")
    for word in range(0, 45, 5):
        (a, *b), others = pieces[word].tolist(), pieces[partners[word]].tolist()
        with_a = np.mean([x([a, *rest]) for _, *rest in others], axis=0)
        with_b = np.mean([x([first, *b]) for first, *_ in others], axis=0)
        np.testing.assert_allclose(ours[word], with_a + with_b - np.mean([*map(x, others)], axis=0), atol=1e-10)


def test_the_additive_control_of_a_sum_is_the_sum():
    """What adds up over pieces is reproduced exactly; what only the pair has is not."""
    random = np.random.default_rng(0)
    pieces = random.integers(30, size=(50, 2))
    first, last = random.normal(size=(2, 30, 5))
    partners = partner_words(pieces, 0)

    def additive(vectors):
        means = [(rows, mean_over_partners(texts, vectors)) for rows, texts in partner_texts(pieces, partners, 7)]
        return add_means(vectors(pieces), partners, means)

    def summed(some):
        return first[some[:, 0]] + last[some[:, 1]]

    def paired(some):
        return summed(some) + first[some[:, 0]] * last[some[:, 1]]

    np.testing.assert_allclose(additive(summed), summed(pieces), atol=1e-12)
    assert np.abs(additive(paired) - paired(pieces)).max() > 0.1


def test_words_that_share_a_piece_share_texts():
    pieces = np.array([[first, last] for first in range(20) for last in range(20, 40)])
    world = partner_texts(pieces, partner_words(pieces, 0))
    unique = sum(len(np.unique(texts.reshape(-1, 2), axis=0)) for _, texts in world)
    assert unique < 2 * PARTNERS * len(pieces) / 3


def test_the_share_lost_is_resampled_word_by_word():
    random = np.random.default_rng(0)
    gains, lost = random.normal(1.0, 0.4, size=(2, 60)), random.normal(0.5, 0.3, size=(3, 60))
    found = shares_lost(lost, gains, resamples=80, seed=4)
    np.testing.assert_allclose(found.value, lost.mean(axis=1) / gains.mean(axis=1).min())
    random, samples = np.random.default_rng(4), []
    for _ in range(80):
        drawn = random.integers(60, size=60)
        samples.append(lost[:, drawn].mean(axis=1) / gains[:, drawn].mean(axis=1).min())
    np.testing.assert_allclose([found.low, found.high], np.quantile(samples, [0.025, 0.975], axis=0))
    behind = shares_lost(lost, gains, resamples=80, seed=4, behind=1)
    np.testing.assert_allclose(behind.value, found.value[1] - found.value)
    paired = np.array(samples)[:, 1, None] - np.array(samples)
    np.testing.assert_allclose([behind.low, behind.high], np.quantile(paired, [0.025, 0.975], axis=0), atol=1e-12)
    assert np.isnan(shares_lost(lost, -gains).value).all(), "no gain, no share"
    assert np.isnan(shares_lost(lost[:, :29], gains[:, :29]).low).all()


def test_chains_of_one_word_have_no_partners():
    assert partner_words(Chains(np.array([[1, 2]]), np.array([3])).pieces, 0) is None

"""AUROC of heads: equal to scikit-learn on the same scores, and the same numbers however the work is cut."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detoklens import demo
from detoklens.corpus.counts import Counts
from detoklens.errors import CountsError, RangeError
from detoklens.kernels.product import QUERIES
from detoklens.kernels.ranking import AUROC, MEASURES
from detoklens.loading import load
from detoklens.measures.auroc import (
    QuerySet,
    RankingOptions,
    mean_over_seen,
    measure_heads,
    measure_query_sets,
    panels_of_block,
)
from detoklens.measures.positives import Positives, from_pairs, seen_pairs
from detoklens.measures.ranking import scores_of
from detoklens.parallel import Runner
from detoklens.scores.affinity import Affinity
from detoklens.tables.files import Parts
from tests.layers import random_layer, sizes
from tests.measures.auroc_oracle import auroc_table, random_affinity, random_counts, random_positives

PLAIN = RankingOptions(controls=False)


def auroc(affinity: Affinity, positives: Positives, tokens=None, options: RankingOptions = PLAIN, **more) -> np.ndarray:
    tokens = np.arange(positives.vocab_size) if tokens is None else tokens
    return measure_heads(affinity, positives, tokens, options=options, **more).heads[..., AUROC]


@settings(max_examples=20)
@given(sizes, st.integers(0, 2**32 - 1))
def test_random_layers_equal_scikit_learn(size: dict, seed: int) -> None:
    layer = random_layer(**size, dtype="float32")
    affinity = layer.token_affinity()
    positives = random_positives(layer.vocab_size, seed, share=0.6)
    np.testing.assert_allclose(auroc(affinity, positives), auroc_table(affinity, positives), rtol=0, atol=1e-9)


@settings(max_examples=20)
@given(st.integers(2, 60), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_ties_equal_scikit_learn(vocab_size: int, d_head: int, seed: int) -> None:
    affinity = random_affinity(2, vocab_size, d_head, seed, whole=True)
    positives = random_positives(vocab_size, seed)
    np.testing.assert_allclose(auroc(affinity, positives), auroc_table(affinity, positives), rtol=0, atol=1e-9)


def test_scores_are_the_affinity() -> None:
    affinity = random_affinity(3, 700, 16, seed=1)
    np.testing.assert_allclose(
        scores_of(affinity.single(), 5), affinity.scores(np.array([5]))[:, 0], rtol=1e-5, atol=1e-5
    )


def test_no_positives_or_no_negatives_is_undefined_and_constants_are_half() -> None:
    positives = from_pairs([(0, 1), (0, 2), (2, 0), (2, 1), (2, 2), (2, 3)], 4)
    flat = Affinity(np.ones((1, 4, 2), np.float32), np.ones((1, 4, 2), np.float32))
    np.testing.assert_array_equal(auroc(flat, positives), [[0.5, np.nan, np.nan, np.nan]])


@pytest.mark.parametrize("whole", [True, False])
def test_permuting_the_vocabulary_changes_no_bit(whole: bool) -> None:
    vocab_size = 300
    affinity, positives = random_affinity(3, vocab_size, 7, 2, whole), random_positives(vocab_size, 2)
    new_id = np.random.default_rng(2).permutation(vocab_size)
    old_id = np.argsort(new_id)
    queries = new_id[np.repeat(np.arange(vocab_size), positives.sizes)]
    order = np.argsort(queries, kind="stable")
    permuted = Positives(
        np.concatenate([[0], np.cumsum(positives.sizes[old_id])]),
        new_id[positives.keys][order].astype(np.uint32),
        positives.weights[order],
    )
    moved = Affinity(affinity.query[:, old_id], affinity.key[:, old_id])
    np.testing.assert_array_equal(auroc(moved, permuted)[:, new_id], auroc(affinity, positives))


def test_which_tokens_are_asked_about_changes_no_bit() -> None:
    """A score must not depend on the tokens beside it. Keys differ so little that their order is one of last bits."""
    random = np.random.default_rng(3)
    affinity, positives = random_affinity(2, 1000, 24, 3), random_positives(1000, 3, share=0.05)
    affinity.key[:] = affinity.key[:, :1] * (1 + 3e-7 * random.standard_normal(affinity.key.shape))
    everything = auroc(affinity, positives)
    some = random.choice(1000, 333, replace=False)
    np.testing.assert_array_equal(auroc(affinity, positives, some), everything[:, some])
    np.testing.assert_allclose(everything[:, some], auroc_table(affinity, positives, some), rtol=0, atol=1e-9)
    assert len(some) > 2 * QUERIES * panels_of_block(1000)


def test_tokens_may_be_named_twice_and_in_any_order() -> None:
    affinity, positives = random_affinity(2, 90, 5, 8), random_positives(90, 8)
    counts, tokens = random_counts(90, 8), np.arange(20, 70)
    plain = measure_heads(affinity, positives, tokens, counts)
    places = np.random.default_rng(8).choice(len(tokens), 120)
    drawn = measure_heads(affinity, positives, tokens[np.append(places, np.arange(50))], counts)
    for name in ("heads", "shuffled_queries", "permuted_keys"):
        np.testing.assert_array_equal(getattr(drawn, name)[:, :120], getattr(plain, name)[:, places], err_msg=name)


@pytest.mark.parametrize("token", [-1, 90])
def test_tokens_that_do_not_exist_are_refused(token: int) -> None:
    with pytest.raises(RangeError, match=f"token id {token} does not exist; token ids go from 0 to 89"):
        auroc(random_affinity(1, 90, 3, 9), random_positives(90, 9), [3, token])


def test_scores_and_positives_of_two_vocabularies_are_refused() -> None:
    with pytest.raises(RangeError, match="the model has 80 tokens, the positives 90"):
        auroc(random_affinity(1, 80, 3, 9), random_positives(90, 9))


def test_a_kept_part_of_another_size_is_not_taken(tmp_path) -> None:
    affinity, positives = random_affinity(1, 400, 3, 9), random_positives(400, 9, share=0.9)
    parts = Parts(tmp_path)
    parts.save(1, {"measures-0": np.zeros((1, 1, 5, MEASURES)), "partners-0": np.zeros((1, 0, 5))})
    with pytest.raises(ValueError, match="broadcast"):
        auroc(affinity, positives, runner=Runner(parts=parts))


@settings(max_examples=15)
@given(st.integers(30, 400), st.integers(0, 2**32 - 1), st.sampled_from([1, 2]))
def test_measured_together_equals_alone_to_the_bit(vocab_size: int, seed: int, heads_per_key: int) -> None:
    """Whole numbers, so that a shifted score is exact and can be had as a product of one more dimension."""
    random = np.random.default_rng(seed)
    whole = random_affinity(4, vocab_size, 3, seed, whole=True)
    own_keys = None if heads_per_key == 1 else (0, 0, 1, 1)
    affinity = Affinity(whole.query, whole.shared_key[: 4 // heads_per_key], own_keys)
    shift = random.integers(-3, 4, (4, vocab_size)).astype(np.float32)
    shifted = Affinity(
        np.concatenate([affinity.query, np.ones((4, vocab_size, 1), np.float32)], axis=2),
        np.concatenate([affinity.key, shift[..., None]], axis=2),
    )
    positives, counts = random_positives(vocab_size, seed), random_counts(vocab_size, seed)
    groups = {"within_class": random.integers(0, 3, vocab_size)}
    some, others = (np.flatnonzero(random.random(vocab_size) < share) for share in (0.4, 0.1))
    asked = [
        (affinity, QuerySet(some)),
        (shifted, QuerySet(some, shift)),
        (affinity, QuerySet(others)),
        (affinity, QuerySet([])),
    ]
    together = measure_query_sets(affinity, positives, [each for _, each in asked], counts, groups=groups)
    for (scores, each), found in zip(asked, together, strict=True):
        alone = measure_heads(scores, positives, each.tokens, counts, groups=groups)
        for one, other in ((found, alone), (found.matched, alone.matched)):
            for name in ("heads", "shuffled_queries", "permuted_keys", "frequency"):
                np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
        np.testing.assert_array_equal(found.within["within_class"], alone.within["within_class"])


@pytest.mark.parametrize("workers", [2, 5])
def test_workers_change_no_bit(workers: int) -> None:
    """Each thread has a buffer of its own for the scores of a block."""
    affinity, positives = random_affinity(2, 900, 8, 4), random_positives(900, 4)
    token_counts = random_counts(900, 4)
    tokens = np.arange(900)
    alone = measure_heads(affinity, positives, tokens, token_counts)
    together = measure_heads(affinity, positives, tokens, token_counts, runner=Runner(workers))
    for name in ("heads", "shuffled_queries", "permuted_keys", "frequency"):
        np.testing.assert_array_equal(getattr(alone, name), getattr(together, name), err_msg=name)


def test_float64_layers_are_judged_by_float32_scores() -> None:
    affinity, positives = random_affinity(2, 80, 5, 6), random_positives(80, 6)
    double = Affinity(affinity.query.astype(np.float64), affinity.key.astype(np.float64))
    np.testing.assert_array_equal(auroc(double, positives), auroc(affinity, positives))


def test_no_seen_token_at_all() -> None:
    affinity = random_affinity(2, 30, 3, 7)
    measures = measure_heads(affinity, from_pairs([(0, 1)], 30), [4, 5], random_counts(30, 7))
    assert np.isnan(measures.heads).all()
    assert measures.shuffled_queries is None


def test_matched_negatives_need_counts() -> None:
    with pytest.raises(CountsError, match="pass counts"):
        auroc(random_affinity(1, 30, 3, 9), random_positives(30, 9), options=RankingOptions(matched=True))


@pytest.fixture(scope="module")
def whisper(whisper_folder, tiny_text):
    """whisper-tiny.en's first layer, and the pairs of a short text."""
    layer = load(whisper_folder)
    ids = np.array(layer.vocabulary.encode(tiny_text.read_text(encoding="utf-8")), np.int64)
    pairs, times = np.unique(np.stack([ids[1:], ids[:-1]]), axis=1, return_counts=True)
    tokens = np.bincount(ids, minlength=layer.vocab_size)
    suffixes, prefixes = pairs.astype(np.uint32)
    return layer, Counts.from_arrays(tokens, suffixes, prefixes, times, layer.vocabulary.fingerprint)


def test_a_real_layer_equals_scikit_learn(whisper) -> None:
    layer, counts = whisper
    affinity, positives = layer.token_affinity(), seen_pairs(counts.bigrams)
    tokens = np.random.default_rng(0).choice(np.flatnonzero(positives.sizes), 12, replace=False)
    tokens = np.append(tokens, np.argmax(positives.sizes))
    found = auroc(affinity, positives, tokens)
    np.testing.assert_allclose(found, auroc_table(affinity, positives, tokens), rtol=0, atol=1e-7)


def test_a_speech_decoder_has_no_head_that_detokenizes(whisper) -> None:
    """It hears the spelling. Measured over all 6,909 tokens of the text: at most 0.02 above its nulls."""
    layer, counts = whisper
    tokens = np.random.default_rng(1).choice(np.flatnonzero(counts.tokens), 512, replace=False)
    measures = measure_heads(layer.token_affinity(), seen_pairs(counts.bigrams), tokens, counts.tokens)
    above = measures.heads[..., AUROC] - measures.shuffled_queries[..., AUROC]
    assert np.nanmean(above, axis=1).max() < 0.08


def test_the_packaged_model_has_a_head_that_detokenizes() -> None:
    """Over all 1,321 word-internal pieces: 0.90 against nulls of 0.70 and 0.55, the other heads at most 0.04 above."""
    layer, counts = load(demo.NAME), Counts.open(demo.COUNTS)
    pieces = np.random.default_rng(0).choice(layer.vocabulary.word_internal(), 400, replace=False)
    measures = measure_heads(layer.token_affinity(), seen_pairs(counts.bigrams), pieces, counts.tokens)
    means = (mean_over_seen(each[..., AUROC]) for each in (measures.shuffled_queries, measures.permuted_keys))
    above = np.sort(mean_over_seen(measures.heads[..., AUROC]) - np.fmax(*means))
    assert above[-1] > 0.15
    assert above[-2] < 0.08


def test_memory_of_the_measures_follows_the_query_tokens() -> None:
    """A number per head, measure and token of the vocabulary would take 0.7 GB for Llama 3.1 405B."""
    vocab_size, n_heads = 4000, 64
    affinity = random_affinity(n_heads, vocab_size, 1, 0)
    positives = from_pairs([(0, 1), (1, 2)], vocab_size)
    auroc(affinity, positives, [0, 1])  # compiles
    tracemalloc.start()
    auroc(affinity, positives, [0, 1])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < n_heads * vocab_size * MEASURES * 8

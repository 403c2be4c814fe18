"""What the commands about tokens say of trained models: the demo detokenizes, a speech decoder does not."""

from __future__ import annotations

import pytest

import detoklens
from detoklens import demo
from detoklens.analyses.auroc import measure_heads, seen_pairs, word_internal
from detoklens.analyses.auroc.means import head_means
from detoklens.analyses.lexicon import lexicon, lexicon_by_head
from detoklens.analyses.self_match import self_match_scores
from detoklens.analyses.word_list import shipped_words, split_words
from detoklens.analyses.words import word_ranks
from detoklens.kernels.ranking import AUROC


@pytest.fixture(scope="module")
def demo_layer():
    if not demo.CHECKPOINT.is_dir():
        pytest.skip("NOT TESTED ON THE DEMO: its checkpoint is missing from the package")
    return detoklens.load(demo.CHECKPOINT)


def words_of(layer, centred):
    _, by_head = word_ranks(layer, split_words(layer.vocabulary, shipped_words()), centred=centred)
    return by_head.with_columns(gain=by_head["null_median_share"] - by_head["median_share"])


def test_most_shipped_words_are_split_by_the_demo(demo_layer):
    split = split_words(demo_layer.vocabulary, shipped_words())
    assert sum(len(word.token_ids) > 1 for word in split) >= 500


def test_the_demos_best_head_ranks_pieces_far_above_chance(demo_layer):
    """The median rank of the piece before is in the top tenth of the vocabulary; chance is the middle."""
    _, by_head = word_ranks(demo_layer, split_words(demo_layer.vocabulary, shipped_words()))
    best = by_head.sort("median_share").row(0, named=True)
    assert best["pairs"] >= 500
    assert best["median_share"] < 0.1
    assert best["null_median_share"] - best["median_share"] > 0.1


def test_the_demos_best_head_stands_above_its_null_and_above_frequency(demo_layer):
    """Over pieces of words, with bootstrap intervals that do not overlap; which head it is may differ by seed."""
    counts = detoklens.Counts.open(demo.COUNTS, demo_layer.vocabulary.fingerprint)
    pairs, pieces = seen_pairs(counts.bigrams), word_internal(demo_layer.vocabulary)
    measured = measure_heads(demo_layer.token_affinity(), pairs, pieces, counts.tokens)

    def interval(values):
        return head_means(values[..., AUROC], pairs.totals[measured.query_tokens]).seen

    heads, null, frequency = map(interval, (measured.heads, measured.shuffled_queries, measured.frequency[None]))
    best = (heads.value - null.value).argmax()
    assert heads.low[best] > null.high[best] + 0.1
    assert heads.low[best] > frequency.high[0] + 0.03


def test_the_demos_lexicon_are_pairs_of_its_corpus(demo_layer):
    counts = detoklens.Counts.open(demo.COUNTS, demo_layer.vocabulary.fingerprint)
    best = words_of(demo_layer, centred=True).sort("gain", descending=True)["head"][0]
    found = lexicon_by_head(lexicon(demo_layer, top=2000, heads=[best], centred=True, counts=counts))
    chance = len(counts.bigrams.prefixes) / demo_layer.vocab_size**2
    assert found["seen_share"][0] > 3 * chance


def test_no_head_of_a_speech_decoder_joins_words_but_one_matches_itself(whisper_folder):
    layer = detoklens.load(whisper_folder)
    words = words_of(layer, centred=False)
    assert words["gain"].max() < 0.1
    assert words["first"].max() < 0.001
    self_match = self_match_scores(layer.token_affinity()).mean(axis=1)
    assert self_match.argmax() == 1
    assert self_match[1] > 4
    assert sorted(self_match)[-2] < 2.5

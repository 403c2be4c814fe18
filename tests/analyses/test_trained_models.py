"""What the commands about tokens say of trained models: the demo detokenizes, a speech decoder does not."""

from __future__ import annotations

import pytest

import detoklens
from detoklens import demo
from detoklens.analyses.lexicon import lexicon, lexicon_by_head
from detoklens.analyses.self_match import self_match_scores
from detoklens.analyses.word_list import shipped_words, split_words
from detoklens.analyses.words import word_ranks


@pytest.fixture(scope="module")
def demo_layer():
    if not demo.CHECKPOINT.is_dir():
        pytest.skip("NOT TESTED ON THE DEMO: its checkpoint is missing from the package")
    return detoklens.load(demo.CHECKPOINT)


def words_of(layer, centred):
    _, by_head = word_ranks(layer, split_words(layer.vocabulary, shipped_words()[::3]), centred=centred)
    return by_head.with_columns(gain=by_head["null_median_share"] - by_head["median_share"])


def test_most_shipped_words_are_split_by_the_demo(demo_layer):
    split = split_words(demo_layer.vocabulary, shipped_words())
    assert sum(len(word.token_ids) > 1 for word in split) >= 500


def test_the_demos_best_head_ranks_pieces_far_above_chance(demo_layer):
    best = words_of(demo_layer, centred=True).sort("gain", descending=True).row(0, named=True)
    assert best["median_share"] < 0.25
    assert best["gain"] > 0.1


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

"""Which pairs are right: those of a corpus, those above chance, the tokenizer's merges, the pieces of words."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from detoklens.analyses.auroc import (
    from_pairs,
    merged_pairs,
    more_than_chance,
    neighbouring_pieces,
    seen_pairs,
    word_internal,
)
from detoklens.corpus.counts import Counts
from detoklens.errors import TokenError
from detoklens.tokens import Vocabulary
from tests.layers import write_tokenizer

TEXT = "the lower tower and the flower of the shower power " * 3


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory) -> Vocabulary:
    return Vocabulary.from_folder(write_tokenizer(tmp_path_factory.mktemp("tokenizer"), [TEXT], 290))


@pytest.fixture(scope="module")
def counted() -> tuple[Counter, Counts]:
    random = np.random.default_rng(0)
    pairs = Counter(map(tuple, (30 * random.random((4000, 2)) ** 2).astype(int).tolist()))
    suffixes, prefixes = np.array(list(pairs), np.uint32).T
    counts = Counts.from_arrays(np.ones(30, np.int64), suffixes, prefixes, np.array(list(pairs.values())))
    return pairs, counts


def as_dict(positives) -> dict[tuple[int, int], int]:
    queries = np.repeat(np.arange(positives.vocab_size), positives.sizes)
    return dict(
        zip(zip(queries.tolist(), positives.keys.tolist(), strict=True), positives.weights.tolist(), strict=True)
    )


def test_seen_pairs_weigh_their_count(counted) -> None:
    pairs, counts = counted
    positives = seen_pairs(counts.bigrams)
    assert as_dict(positives) == dict(pairs)
    totals = Counter()
    for (suffix, _), times in pairs.items():
        totals[suffix] += times
    assert positives.totals.tolist() == [totals[token] for token in range(30)]
    assert set(as_dict(positives.equally_weighted()).values()) == {1}


@pytest.mark.parametrize("above", [-1.0, 0.0, 0.7])
def test_more_than_chance_is_pmi(counted, above: float) -> None:
    pairs, counts = counted
    before, after, total = Counter(), Counter(), sum(pairs.values())
    for (suffix, prefix), times in pairs.items():
        before[prefix] += times
        after[suffix] += times
    pmi = {pair: math.log2(times * total / (after[pair[0]] * before[pair[1]])) for pair, times in pairs.items()}
    expected = {pair: pairs[pair] for pair in pairs if pmi[pair] > above}
    assert as_dict(more_than_chance(counts.bigrams, above)) == expected
    assert 0 < len(expected) < len(pairs)


def test_merges_are_key_then_query(vocabulary: Vocabulary) -> None:
    positives = as_dict(merged_pairs(vocabulary, vocabulary.size))
    assert len(positives) == len(set(vocabulary.merges())) > 0
    for (query, key), weight in positives.items():
        assert vocabulary.text(key) + vocabulary.text(query) in vocabulary.texts()
        assert weight == 1


def test_words_give_neighbouring_pieces(vocabulary: Vocabulary) -> None:
    words = ["glower", "qglower", "the"]
    expected = Counter()
    for word in words:
        pieces = vocabulary.encode(f" {word}")
        expected.update(zip(pieces[1:], pieces[:-1], strict=True))
    assert as_dict(neighbouring_pieces(vocabulary, words, vocabulary.size)) == dict(expected)
    assert expected.most_common(1)[0][1] == 2


def test_a_list_with_nothing_that_splits_is_refused(vocabulary: Vocabulary) -> None:
    with pytest.raises(TokenError, match="none of the 1 words is split"):
        neighbouring_pieces(vocabulary, ["the"], vocabulary.size)


def test_pairs_given_twice_weigh_two() -> None:
    assert as_dict(from_pairs([(3, 1), (0, 2), (3, 1)], 5)) == {(0, 2): 1, (3, 1): 2}


def test_word_internal_pieces_begin_with_a_letter(vocabulary: Vocabulary) -> None:
    pieces = {vocabulary.text(token) for token in word_internal(vocabulary)}
    assert {"ower", "l", "é"} - pieces == {"é"}
    assert not any(piece[0] in " 0123456789.,<\\" for piece in pieces)
    assert " the" in vocabulary.texts()


def test_wordpiece_marks_its_pieces(tmp_path) -> None:
    from tokenizers import Tokenizer, models

    words = {"[UNK]": 0, "play": 1, "##ing": 2, "##9": 3, "##": 4}
    tokenizer = Tokenizer(models.WordPiece(words, unk_token="[UNK]"))
    assert word_internal(Vocabulary(tokenizer)) == [2]


def test_a_tokenizer_without_merges_is_refused() -> None:
    from tokenizers import Tokenizer, models

    vocabulary = Vocabulary(Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]")))
    with pytest.raises(TokenError, match="no merges"):
        merged_pairs(vocabulary, vocabulary.size)

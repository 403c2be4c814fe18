"""Lists of words, and the tokens that they fall into."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer, normalizers
from tokenizers.models import BPE, WordPiece
from tokenizers.pre_tokenizers import Whitespace

from detoklens.errors import DetokLensError, TokenError
from detoklens.measures import words as word_lists
from detoklens.measures.words import fingerprint_of, given_words, listed_words, shipped_words, split_words, word_pairs
from detoklens.tokens import Vocabulary
from tests.spelled import shipping_few_words, spelled_layer


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    return spelled_layer(tmp_path_factory.mktemp("spelled")).vocabulary


def test_comments_blank_lines_and_repetitions_are_no_words():
    assert listed_words("# names\n\n Tokyo \r\nOslo\nTokyo\n#Rome\n") == ["Tokyo", "Oslo"]


def test_the_shipped_list_has_several_hundred_entries_of_every_kind():
    words = shipped_words()
    assert 900 < len(words) == len(set(words))
    assert {"sapiens", "Albert Einstein", "sodium chloride", "North Korea", "Tokyo", "handkerchief"} <= set(words)


def test_words_come_from_a_file_from_python_or_along(tmp_path):
    listing = tmp_path / "mine.txt"
    listing.write_bytes(b"\xef\xbb\xbfTokyo\n# a note\nOslo\n")
    assert given_words(listing) == given_words([" Tokyo", "Oslo", "", "Tokyo "]) == ["Tokyo", "Oslo"]
    assert given_words(["#1"]) == ["#1"]
    assert given_words(None) == shipped_words()


def test_files_that_are_no_lists_are_refused(tmp_path):
    with pytest.raises(DetokLensError, match="no such file; pass a word list, one word per line"):
        given_words(tmp_path)
    (tmp_path / "latin").write_bytes(b"caf\xe9\n")
    with pytest.raises(DetokLensError, match="not UTF-8 at byte 3"):
        given_words(tmp_path / "latin")


def test_fingerprints_tell_lists_apart():
    assert fingerprint_of(["a", "b"]) == fingerprint_of(("a", "b")) != fingerprint_of(["b", "a"])
    assert len(fingerprint_of(["\udcff"])) == 64


def test_unknown_and_special_tokens_are_no_pieces_of_words():
    words = WordPiece({"[UNK]": 0, "[CLS]": 1, "sap": 2, "##iens": 3, "home": 4}, unk_token="[UNK]")
    tokenizer = Tokenizer(words)
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.add_special_tokens(["[CLS]"])
    split = split_words(Vocabulary(tokenizer), ["sapiens", "xx yy sapiens", "xx yy", "[CLS] home", "home sapiens"])
    assert [word.token_ids for word in split] == [(2, 3), (0, 0, 2, 3), (0, 0), (1, 4), (4, 2, 3)]
    pairs = word_pairs(split)
    assert pairs.words == ("sapiens", "xx yy sapiens", "home sapiens", "home sapiens")
    assert list(zip(pairs.pair, pairs.keys, pairs.queries, strict=True)) == [(0, 2, 3), (2, 2, 3), (0, 4, 2), (1, 2, 3)]
    with pytest.raises(TokenError, match="this tokenizer splits none of the 2 words into known pieces"):
        word_pairs(split[2:4])


def test_a_tokenizer_that_adds_a_space_is_not_given_a_second_one():
    tokenizer = Tokenizer(BPE({"▁": 0, "a": 1, "b": 2, "▁a": 3}, [("▁", "a")]))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    assert [word.token_ids for word in split_words(Vocabulary(tokenizer), ["ab"])] == [(3, 2)]


def test_a_list_with_nothing_that_splits_is_refused(vocabulary):
    with pytest.raises(TokenError, match="this tokenizer splits none of the 1 words"):
        word_pairs(split_words(vocabulary, ["century"]))


def test_tests_of_few_words_have_the_same_ones_however_they_are_nested():
    with shipping_few_words():
        few = word_lists.shipped_words()
        assert 30 < len(few) < 100
        with shipping_few_words():
            assert word_lists.shipped_words() == few
    assert len(word_lists.shipped_words()) > 900

"""Which pairs are right (of a corpus, above chance, merges, pieces of words), and from which query tokens."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detoklens.errors import CountsError, DetokLensError, TokenError
from detoklens.questions.auroc.compute import (
    GroundTruth,
    can_be_spelled,
    merged_pairs,
    neighbouring_pieces,
    query_tokens,
    read_tokens,
    spelled_tokens,
)
from detoklens.tokens import Vocabulary
from tests.layers import write_tokenizer
from tests.measures.auroc_oracle import as_dict, random_bigrams

TEXT = "the lower tower and the flower of the shower power " * 3


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory) -> Vocabulary:
    return Vocabulary.from_folder(write_tokenizer(tmp_path_factory.mktemp("tokenizer"), [TEXT], 290))


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
    with pytest.raises(TokenError, match="splits none of the 1 words"):
        neighbouring_pieces(vocabulary, ["the"], vocabulary.size)


def test_a_tokenizer_without_merges_is_refused() -> None:
    from tokenizers import Tokenizer, models

    vocabulary = Vocabulary(Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]")))
    with pytest.raises(TokenError, match="no merges"):
        merged_pairs(vocabulary, vocabulary.size)


def truth(**given) -> GroundTruth:
    plain = {"source": "counts", "kind": "count", "pmi_above": 0.0, "weights": "count", "words": None}
    return GroundTruth(**plain | given)


def test_what_does_not_go_together_is_refused(tmp_path) -> None:
    with pytest.raises(DetokLensError, match="needs the truth 'words', not 'counts'; change one"):
        truth(words=tmp_path / "words.txt").check()
    with pytest.raises(DetokLensError, match="the positives 'pmi' need the truth 'counts', not 'merges'"):
        truth(source="merges", kind="pmi").check()
    with pytest.raises(DetokLensError, match="is not a finite number of bits"):
        truth(pmi_above=math.nan).check()
    truth(source="words", words=tmp_path).check()


def test_only_what_decides_the_numbers_is_kept(tmp_path) -> None:
    (tmp_path / "words.txt").write_text("glower\n# a note\n", encoding="utf-8")
    (tmp_path / "other.txt").write_text("glower", encoding="utf-8")
    listed = [truth(source="words", words=tmp_path / name).settings() for name in ("words.txt", "other.txt")]
    assert listed[0] == listed[1] == truth(source="words", words=("glower",)).settings()
    assert listed[0] != truth(source="words").settings()
    assert truth(pmi_above=3.0).settings() == truth().settings()
    assert truth(kind="pmi", pmi_above=3.0).settings()["pmi_above"] == 3.0
    assert "positives" not in truth(source="merges").settings()


def test_pairs_above_no_pmi_are_refused() -> None:
    _, counts = random_bigrams()
    assert len(truth(kind="pmi").positives(None, counts).keys) > 0
    with pytest.raises(CountsError, match="has a PMI above 99 bits; lower the threshold"):
        truth(kind="pmi", pmi_above=99.0).positives(None, counts)


class FewTokens:
    """What `query_tokens` asks of a layer."""

    vocab_size = 280

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary


def test_query_tokens_are_those_named_or_all_and_of_them_pieces(vocabulary: Vocabulary) -> None:
    layer = FewTokens(vocabulary)
    pieces = [token for token in vocabulary.word_internal() if token < 280]
    assert query_tokens(layer, None, pieces=False) == list(range(280))
    assert query_tokens(layer, None, pieces=True) == pieces
    assert query_tokens(layer, [pieces[2], 0, pieces[2]], pieces=False) == [0, pieces[2]]
    assert query_tokens(layer, [pieces[2], 0], pieces=True) == [pieces[2]]
    with pytest.raises(TokenError, match="none of the named ones is a continuation token"):
        query_tokens(layer, [0], pieces=True)


def test_tokens_of_the_command_line_are_ids_ranges_files_or_texts(tmp_path) -> None:
    (tmp_path / "tokens.txt").write_text(" the\n\n4-6\n@x\n", encoding="utf-8")
    read = read_tokens([" Korea", "262", "0-2,7", f"@{tmp_path / 'tokens.txt'}", "@", "-1", "1a"])
    assert read == (" Korea", 262, 0, 1, 2, 7, " the", 4, 5, 6, "@x", "@", "-1", "1a")
    with pytest.raises(ValueError, match="5-2 is reversed"):
        read_tokens(["5-2"])
    with pytest.raises(DetokLensError, match=r"nowhere.txt: no such file; name a file with one token per line"):
        read_tokens(["@nowhere.txt"])
    (tmp_path / "empty.txt").write_text("\n", encoding="utf-8")
    with pytest.raises(TokenError, match="has no tokens"):
        read_tokens([f"@{tmp_path / 'empty.txt'}"])


@given(st.lists(st.integers(0, 5) | st.text(max_size=3).filter(can_be_spelled), min_size=1))
def test_spelled_tokens_are_read_back_in_order(tokens: list[str | int]) -> None:
    words = spelled_tokens("--roc")(tokens)
    assert set(words[::2]) == {"--roc"}
    assert read_tokens(words[1::2]) == tuple(tokens)


def test_ids_in_a_row_are_spelled_as_one_word() -> None:
    words = spelled_tokens("--roc")([4, 5, 6, "a", "b", 9, 7, 8, 10, 12])
    assert words == ["--roc", "4-6", "--roc", "a", "--roc", "b", "--roc", "9,7-8,10,12"]


@pytest.mark.parametrize("text", ["", "262", "1-2", "7,", "@file", "a\nb", "\x00"])
def test_texts_that_the_command_line_would_read_otherwise_are_known(text: str) -> None:
    assert not can_be_spelled(text)

"""Tokens and their texts."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

import detoklens
from detoklens.errors import CheckpointError, TokenError
from detoklens.tokens import Vocabulary
from detoklens.tokens.vocabulary import BYTE_OF_CHARACTER
from tests.layers import write_tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    texts = ["suspicion connection exception collection protection", "naïve café – smörgåsbord 東京"]
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer"), texts * 5, vocab_size=330)


@pytest.fixture(scope="module")
def vocabulary(folder):
    return Vocabulary.from_folder(folder)


def test_a_vocabulary_says_its_size_and_kind(vocabulary):
    assert repr(vocabulary) == f"Vocabulary of {vocabulary.size} tokens (byte-level BPE)"
    words = Tokenizer(models.WordLevel({str(word): word for word in range(1500)}, unk_token="0"))
    assert repr(Vocabulary(words)) == "Vocabulary of 1,500 tokens (WordLevel)"


@given(text=st.text())
def test_tokens_joined_are_the_text(vocabulary, text):
    assert vocabulary.join(vocabulary.encode(text)) == text


def test_the_byte_alphabet_is_the_tokenizers_own():
    from tokenizers import pre_tokenizers

    assert set(BYTE_OF_CHARACTER) == set(pre_tokenizers.ByteLevel.alphabet())
    assert sorted(BYTE_OF_CHARACTER.values()) == list(range(256))
    assert BYTE_OF_CHARACTER["Ġ"] == ord(" ")
    assert BYTE_OF_CHARACTER["Ċ"] == ord("\n")


def test_text_and_id_are_inverse(vocabulary):
    ids = [vocabulary.id(vocabulary.text(token)) for token in range(vocabulary.size)]
    assert ids == list(range(vocabulary.size))


def test_half_a_character_is_shown_as_bytes(vocabulary):
    assert vocabulary.text(vocabulary.tokenizer.token_to_id("æ")) == "\\xe6"


def test_several_tokens_are_named(vocabulary):
    pieces = vocabulary.encode(" zebra")
    with pytest.raises(TokenError) as caught:
        vocabulary.id(" zebra")
    assert f"is {len(pieces)} tokens: " in str(caught.value)
    for piece in pieces:
        assert f"{vocabulary.text(piece)!r} ({piece})" in str(caught.value)


def test_ids_out_of_range_are_refused(vocabulary):
    with pytest.raises(TokenError, match=f"ids go from 0 to {vocabulary.size - 1}"):
        vocabulary.text(vocabulary.size)


def test_merges_are_ids_that_join(vocabulary):
    merges = vocabulary.merges()
    assert len(merges) > 20
    for left, right, merged in merges:
        assert vocabulary.raw(left) + vocabulary.raw(right) == vocabulary.raw(merged)


def test_older_files_give_the_same_vocabulary(folder, vocabulary, tmp_path):
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"]))
    pairs = [" ".join(pair) for pair in model["merges"]]
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(pairs) + "\n")
    older = Vocabulary.from_folder(tmp_path)
    assert older.texts() == vocabulary.texts()
    assert older.encode("a connection – café") == vocabulary.encode("a connection – café")
    assert older.fingerprint == vocabulary.fingerprint


def test_fingerprints_tell_tokenizers_apart(folder, vocabulary, tmp_path):
    assert Vocabulary.from_json(vocabulary.to_json()).fingerprint == vocabulary.fingerprint
    write_tokenizer(tmp_path, ["other words entirely, other merges"] * 3, vocab_size=300)
    assert Vocabulary.from_folder(tmp_path).fingerprint != vocabulary.fingerprint


def test_padding_and_truncation_are_switched_off(folder, tmp_path):
    description = json.loads((folder / "tokenizer.json").read_text())
    description["truncation"] = {"max_length": 2, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(description))
    assert len(Vocabulary.from_folder(tmp_path).encode("a long text of many words")) > 2


@pytest.mark.parametrize("content", ["", "{}", "not json", '{"model": {"type": "Nonsense"}}'])
def test_a_broken_tokenizer_is_one_line(tmp_path, content):
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(CheckpointError) as caught:
        Vocabulary.from_folder(tmp_path)
    assert "\n" not in str(caught.value)
    with pytest.raises(CheckpointError):
        detoklens.load_vocabulary(tmp_path / "tokenizer.json")


@pytest.mark.parametrize("vocab", ["[]", '{"a": "x"}', "{", '{"a": 4000000000}'])
def test_broken_older_files_are_one_line(tmp_path, vocab):
    (tmp_path / "vocab.json").write_text(vocab)
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    with pytest.raises(CheckpointError) as caught:
        Vocabulary.from_folder(tmp_path)
    assert "\n" not in str(caught.value)


def test_an_id_beyond_any_vocabulary_is_refused(tmp_path):
    """Such an id would make the tokenizing library ask for 17 GB when it writes the vocabulary out."""
    model = {"type": "BPE", "vocab": {"a": 4_000_000_000}, "merges": []}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"version": "1.0", "model": model}))
    with pytest.raises(CheckpointError, match="token id 4000000000 is beyond any supported vocabulary"):
        Vocabulary.from_folder(tmp_path)


def test_text_that_is_no_unicode_is_refused(vocabulary):
    """What a command line makes of the byte 0xff."""
    for ask in (vocabulary.id, vocabulary.encode):
        with pytest.raises(TokenError, match="is not valid text at character 1; pass it as UTF-8"):
            ask("a\udcff")


def test_no_tokenizer_is_said(tmp_path):
    with pytest.raises(CheckpointError, match=r"no tokenizer\.json"):
        Vocabulary.from_folder(tmp_path)


def test_gpt2s_vocabulary(whisper_folder):
    vocabulary = detoklens.load_vocabulary(whisper_folder)
    assert vocabulary.encode(" sapiens") == [31841, 10465]
    assert (vocabulary.text(31841), vocabulary.text(10465)) == (" sap", "iens")
    with pytest.raises(TokenError, match=r"' sapiens' is 2 tokens: ' sap' \(31841\), 'iens' \(10465\)"):
        vocabulary.id(" sapiens")
    assert detoklens.load_vocabulary(whisper_folder / "tokenizer.json").fingerprint == vocabulary.fingerprint


def test_word_internal_tokens_begin_with_a_letter(tmp_path):
    text = "the lower tower and the flower of the shower power " * 3
    vocabulary = Vocabulary.from_folder(write_tokenizer(tmp_path, [text], 290))
    pieces = {vocabulary.text(token) for token in vocabulary.word_internal()}
    assert {"ower", "l", "é"} - pieces == {"é"}
    assert not any(piece[0] in " 0123456789.,<\\" for piece in pieces)
    assert " the" in vocabulary.texts()


def test_wordpiece_marks_its_word_internal_tokens():
    words = {"[UNK]": 0, "play": 1, "##ing": 2, "##9": 3, "##": 4}
    assert Vocabulary(Tokenizer(models.WordPiece(words, unk_token="[UNK]"))).word_internal() == [2]


def test_wordpiece_joins_pieces_and_keeps_words_apart():
    words = {"[UNK]": 0, "dwell": 1, "##ing": 2, "house": 3, "boat": 4, "##s": 5}
    vocabulary = Vocabulary(Tokenizer(models.WordPiece(words, unk_token="[UNK]")))
    assert vocabulary.join([1, 2]) == "dwelling"
    assert vocabulary.join([1, 2, 5, 3]) == "dwellings house"
    assert vocabulary.join([3, 4]) == "house boat", "which is not the word houseboat"
    assert vocabulary.join([2, 5]) == "##ings"
    assert vocabulary.text(2) == "##ing"


BREAKING = {
    "at loading": {"model": {"continuing_subword_prefix": "##"}},
    "at any text": {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
}


@pytest.mark.parametrize("when", BREAKING)
def test_a_panic_of_the_library_is_one_line_and_unheard(folder, tmp_path, capfd, when):
    description = json.loads((folder / "tokenizer.json").read_text())
    for section, change in BREAKING[when].items():
        description[section] = description[section] | change
    (tmp_path / "tokenizer.json").write_text(json.dumps(description))
    with pytest.raises(CheckpointError, match=r"not a tokenizer that can be read \(.*\); download it again"):
        Vocabulary.from_folder(tmp_path)
    assert capfd.readouterr().err == ""


def test_a_panic_at_a_later_text_is_one_line(folder):
    description = json.loads((folder / "tokenizer.json").read_text())
    description["pre_tokenizer"] = {"type": "FixedLength", "length": 0}
    with pytest.raises(TokenError, match=r"can't read 'a' \(chunk size must be non-zero\); download it again"):
        Vocabulary.from_json(json.dumps(description)).encode("a")


def test_two_tokens_of_one_id_are_refused(folder, tmp_path):
    """Which of the two the id stands for would be another one in the next run."""
    description = json.loads((folder / "tokenizer.json").read_text())
    description["model"]["vocab"]["zebra"] = 7
    (tmp_path / "tokenizer.json").write_text(json.dumps(description))
    with pytest.raises(CheckpointError, match=r"the tokens .* and 'zebra' share the id 7; download it again"):
        Vocabulary.from_folder(tmp_path)


def test_merges_are_not_left_out_by_chance(folder, vocabulary, tmp_path):
    description = json.loads((folder / "tokenizer.json").read_text())
    description["model"]["dropout"] = 0.5
    (tmp_path / "tokenizer.json").write_text(json.dumps(description))
    steady = Vocabulary.from_folder(tmp_path)
    text = "suspicion connection exception collection protection"
    assert [steady.encode(text) for _ in range(9)] == [vocabulary.encode(text)] * 9
    assert steady.fingerprint == vocabulary.fingerprint


def test_added_tokens_that_the_normalizer_makes_one_are_refused(folder, tmp_path):
    """Which of the two a text has would be another one in the next run."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.add_tokens([AddedToken("<PAD>", normalized=True), AddedToken("<pad>", normalized=False)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert Vocabulary.from_folder(tmp_path).encode("<pad>")
    description = json.loads((tmp_path / "tokenizer.json").read_text())
    last = max(description["added_tokens"], key=lambda token: token["id"])
    description["added_tokens"].append(last | {"id": last["id"] + 1, "content": "<Pad>", "normalized": True})
    (tmp_path / "tokenizer.json").write_text(json.dumps(description))
    with pytest.raises(
        CheckpointError, match=r"'<PAD>' and '<Pad>' are the same text after normalization; remove one|Duplicate"
    ):
        Vocabulary.from_folder(tmp_path)


def test_a_misspelled_token_gets_a_suggestion():
    words = {word: place for place, word in enumerate(["[UNK]", "connection", "con", "##ek", "##tion", "zebra"])}
    tokenizer = Tokenizer(models.WordPiece(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    vocabulary = Vocabulary(tokenizer)
    with pytest.raises(TokenError, match=r"is 3 tokens: .*; did you mean 'connection'\? Or name one of them"):
        vocabulary.id("conektion")
    with pytest.raises(TokenError, match=r"'zebra' \(5\); name one of them"):
        vocabulary.id("contion zebra")

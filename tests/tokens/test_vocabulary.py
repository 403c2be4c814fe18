"""Tokens and their texts."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import detoklens
from detoklens.errors import CheckpointError, TokenError
from detoklens.tokens import Vocabulary
from detoklens.tokens.byte_text import BYTE_OF_CHARACTER
from tests.layers import write_tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    texts = ["suspicion connection exception collection protection", "naïve café – smörgåsbord 東京"]
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer"), texts * 5, vocab_size=330)


@pytest.fixture(scope="module")
def vocabulary(folder):
    return Vocabulary.from_folder(folder)


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
    with pytest.raises(CheckpointError, match="token id 4000000000 is beyond any vocabulary in use"):
        Vocabulary.from_folder(tmp_path)


def test_text_that_is_no_unicode_is_refused(vocabulary):
    """What a command line makes of the byte 0xff."""
    for ask in (vocabulary.id, vocabulary.encode):
        with pytest.raises(TokenError, match="is no valid text at character 1; give it as UTF-8"):
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

"""A tokenizer that takes a whole text as one word: told apart into words, the ids are those of the true library."""

import gc
import json
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from detoklens.corpus import word_by_word
from detoklens.corpus.encoding import GigatokenEncoder, TokenizersEncoder, choose_library
from detoklens.corpus.word_by_word import AT_SPACES, BYTE_TOKENS, IN_CONTEXT, PREPEND, REPLACE, WordByWord, splittable
from detoklens.errors import TokenError
from detoklens.tokens import Vocabulary
from tests.corpus.conftest import byte_level_vocabulary

SENTENCES = [
    "the priest was descending the stairs, and the stairs were steep\n\nthe nation's tradition  of attention",
    "a connection between nations; the question (of tradition) was   attended to.\n\tthe end: 1,000 naïve cafés",
]
NASTY = [
    *("", " ", "  ", "   the", "the ", "\n", "\n\n\n", "\t", "▁", "▁the", "the▁", " ▁ ", "▁ the", "\x00", "é", "naïve"),
    *("日本語", "🤦\u200d♂️", "<s>", "<0x41>", "x" * 40, "the" * 20, "\u00a0", "\r\n", "’s", "a\u0301", "\U0010ffff"),
]
TEXTS = st.lists(
    st.lists(
        st.one_of(st.sampled_from(NASTY), st.sampled_from(" ".join(SENTENCES).split(" ")), st.text(max_size=8)),
        max_size=8,
    ).map(" ".join),
    min_size=1,
    max_size=6,
)


@cache
def description_of(splits_words: bool = True, prepends: bool = False) -> str:
    """A BPE like Gemma's or Mistral's, whose merges stop at a space or go over it."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    if splits_words:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=["<unk>", "<s>", *BYTE_TOKENS], show_progress=False)
    tokenizer.train_from_iterator(SENTENCES * 3, trainer)
    description = json.loads(tokenizer.to_str())
    description["pre_tokenizer"] = None
    description["added_tokens"] = [token for token in description["added_tokens"] if token["id"] < 2]
    if prepends:
        description["normalizer"] = {"type": "Sequence", "normalizers": [PREPEND, REPLACE]}
    return json.dumps(description)


def assert_same_ids(tokenizer_json: str, texts: Sequence[str]) -> None:
    """Of texts that are met for the first time, and once more in another order."""
    fast, true = GigatokenEncoder(tokenizer_json, False), TokenizersEncoder(tokenizer_json, False)
    for in_order in (texts, texts[::-1]):
        given_texts = [text.encode() for text in in_order]
        for found, expected in zip(fast.encode(given_texts), true.encode(given_texts), strict=True):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("prepends", [False, True])
@pytest.mark.parametrize("splits_words", [False, True])
@given(texts=TEXTS)
def test_the_ids_are_those_of_tokenizers(splits_words: bool, prepends: bool, texts: list[str]) -> None:
    assert_same_ids(description_of(splits_words, prepends), texts)


def added(*contents: str, **settings: bool) -> list[dict[str, Any]]:
    flags = dict.fromkeys(("special", *IN_CONTEXT), False) | settings
    ids = json.loads(description_of())["model"]["vocab"]
    new = [content for content in contents if content not in ids]  # these get the next ids
    ids |= {content: len(ids) + number for number, content in enumerate(new)}
    return [{"id": ids[content], "content": content} | flags for content in contents]


@given(
    texts=TEXTS,
    contents=st.lists(
        st.one_of(
            st.sampled_from(["\n\n", "\t", "▁▁", "  ", "the end", "e", "s.", "<s>"]), st.text(min_size=1, max_size=3)
        ),
        min_size=1,
        max_size=4,
        unique=True,
    ),
    at_spaces=st.booleans(),
)
def test_added_tokens_lie_within_words(texts: list[str], contents: list[str], at_spaces: bool) -> None:
    """As in Gemma 3, whose tabs, line ends and HTML tags are added tokens that aren't special."""
    description = plain(description_of()) | {"added_tokens": added(*contents)}
    description["normalizer"] = {"type": "Sequence", "normalizers": [REPLACE]}
    if at_spaces:
        description["pre_tokenizer"] = AT_SPACES
    assert splittable(json.loads(json.dumps(description))) is not None
    assert_same_ids(json.dumps(description), [*texts, "".join(contents), "x".join(contents)])


@given(texts=TEXTS)
def test_a_table_that_is_full_changes_nothing(texts: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(word_by_word, "WORDS_KEPT", 8)
        patch.setattr(word_by_word, "BLOCKS_KEPT", 1)
        assert_same_ids(description_of(), texts)


@given(texts=TEXTS)
def test_batches_of_mostly_new_words_are_tokenized_whole(texts: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(word_by_word, "MANY", 2)
        assert_same_ids(description_of(prepends=True), texts)


def test_a_batch_of_mostly_new_words_is_asked_for_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_by_word, "MANY", 3)
    asked = Asked()
    words = to_cli_args(description_of(), asked)
    words.encode([b"the end", b"the end of"])
    assert asked.words == [b"the", b" end", b" of"]
    words.encode([b"a tradition was a nation"])
    assert asked.words[3:] == [b"a tradition was a nation"]
    words.encode([b"the end"])
    assert asked.words[4:] == [b"the", b" end"]  # nothing was kept


def test_a_full_table_that_knows_too_little_is_begun_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_by_word, "WORDS_KEPT", 4)
    asked = Asked()
    words = to_cli_args(description_of(), asked)
    words.encode([b"the end of the"])
    words.encode([b"the was a the the"])
    assert asked.words[4:] == [b" was", b" a"]
    words.encode([b"the was"])
    assert asked.words[6:] == [b"the", b" was"]
    words.encode([b"the was"])
    assert asked.words[8:] == []


def test_threads_may_share_an_encoder() -> None:
    encoder = GigatokenEncoder(description_of(), False)
    chance = np.random.default_rng(0)
    texts = [" ".join(map(str, chance.integers(10**6, size=3000))).encode() for _ in range(16)]
    expected = [TokenizersEncoder(description_of(), False).encode([text]).ids for text in texts]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda text: encoder.encode([text]).ids, texts))
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_more_than_the_table_can_number_is_tokenized_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_by_word, "LARGEST", 10)
    assert_same_ids(description_of(prepends=True), SENTENCES)


@pytest.mark.parametrize("vocabulary", [description_of(), byte_level_vocabulary(300).to_json()], ids=["words", "whole"])
def test_an_encoder_is_given_back_at_once(vocabulary: str) -> None:
    encoder = GigatokenEncoder(vocabulary, False)
    gone = weakref.ref(encoder)
    with without_collection():
        del encoder
        assert gone() is None


@contextmanager
def without_collection() -> Iterator[None]:
    """Only what nothing refers to is given back."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Asked:
    """An encoder of words that gives a word's length as its only id, and remembers what it was asked for."""

    def __init__(self, refuses: bool = False) -> None:
        self.words: list[bytes] = []
        self.refuses = refuses

    def __call__(self, words: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        self.words += words
        if b" of" in words and self.refuses:
            raise TokenError("refused")
        return np.array([len(word) for word in words], np.uint32), np.arange(len(words) + 1)


def to_cli_args(description: str, asked: Asked) -> WordByWord:
    splitting = splittable(plain(description))
    assert splitting is not None
    return WordByWord(*splitting, asked)


def plain(description: str) -> dict[str, Any]:
    return json.loads(description) | {"added_tokens": []}


def test_each_word_is_tokenized_once() -> None:
    asked = Asked()
    words = to_cli_args(description_of(), asked)
    for _ in range(2):
        ids, offsets = words.encode([b"the end of the end", b"", b"the end"])
        assert ids.tolist() == [3, 4, 3, 4, 4, 3, 4]
        assert offsets.tolist() == [0, 5, 5, 7]
    assert asked.words == [b"the", b" end", b" of", b" the"]


def test_words_without_ids_are_forgotten() -> None:
    words = to_cli_args(description_of(), Asked(refuses=True))
    with pytest.raises(TokenError):
        words.encode([b"the end of"])
    assert words.encode([b"the end"])[0].tolist() == [3, 4]


def changed(**changes: object) -> dict[str, Any]:
    description = plain(description_of())
    description["model"] |= changes
    return description


def with_merged_byte() -> dict[str, Any]:
    description = plain(description_of())
    description["model"]["merges"].append(["<0xE2>", "a"])
    return description


def without(*tokens: str) -> dict[str, Any]:
    description = plain(description_of())
    for token in tokens:
        description["model"]["vocab"].pop(token)
    return description


@pytest.mark.parametrize(
    "description",
    [
        json.loads(description_of(prepends=True)),
        *(plain(description_of()) | {"added_tokens": added("x", **{flag: True})} for flag in IN_CONTEXT),
        plain(description_of()) | {"normalizer": None},
        plain(description_of()) | {"pre_tokenizer": {"type": "ByteLevel"}},
        changed(byte_fallback=False),
        changed(ignore_merges=True),
        changed(dropout=0.1),
        with_merged_byte(),
        without("<0xC3>"),
        without("<0x7A>"),
    ],
    ids=[
        "prefix",
        *IN_CONTEXT,
        "normalizer",
        "split",
        "unknown",
        "whole words",
        "dropout",
        "merged byte",
        "no byte",
        "no letter",
    ],
)
def test_whatever_depends_on_more_than_its_word_is_left_whole(description: dict[str, Any]) -> None:
    assert splittable(description) is None


def test_a_byte_that_is_a_character_of_its_own_needs_no_other_token() -> None:
    assert "e" in plain(description_of())["model"]["vocab"]
    assert splittable(without("<0x65>")) is not None  # as Gemma's tab


@pytest.mark.parametrize("name", ["gemma", "mistral"])
def test_real_tokenizers_are_split_and_right(corpus_folder: Path, name: str) -> None:
    path = corpus_folder.parent / "tokenizers" / f"{name}.json.zst"
    if not path.is_file():
        pytest.skip(f"NOT TESTED ON REAL DATA: {path.name} is missing beside the repository (../shared)")
    with path.open("rb") as file:
        tokenizer_json = zstandard.ZstdDecompressor().stream_reader(file).read().decode()
    assert splittable(plain(tokenizer_json)) is not None
    with (corpus_folder / "shard-04.jsonl.zst").open("rb") as file:
        lines = zstandard.ZstdDecompressor().stream_reader(file).read(600_000).splitlines()[:-1]
    texts = [*(json.loads(line)["text"] for line in lines), *NASTY, " ".join(NASTY)]
    choice = choose_library(Vocabulary.from_json(tokenizer_json), [text.encode() for text in texts], False)
    assert choice.reason is None, "the ids of all texts and of every token are those of tokenizers"

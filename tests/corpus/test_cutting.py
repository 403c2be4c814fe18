"""Texts are cut only where the tokenizer's own splitter has a border and sees no difference."""

import json
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from detoklens.corpus.count import count_corpus
from detoklens.corpus.cutting import PieceSplitter, bytes_never_cut
from detoklens.corpus.encoding import GigatokenEncoder, TokenizersEncoder, choose_library
from detoklens.corpus.regexes import Unanalysed
from detoklens.corpus.word_by_word import word_by_word_encoder
from detoklens.engines import open_engine
from detoklens.tokens import Vocabulary
from detoklens.tokens.vocabulary import BYTE_OF_CHARACTER
from tests.corpus.conftest import byte_level_vocabulary
from tests.corpus.plain_counting import as_counters, plain_counts, without_special_parsing, write_jsonl

BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
CL100K = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s+"
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,1}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
NASTY = [
    *(
        "the ",
        " nation's",
        "it'S ",
        "don’t",
        "1,000",
        "2024",
        "  \n\n x",
        "\t\t",
        "\r\n",
        "\x00",
        "\x1c",
        "\x85",
        "\u200b",
    ),
    *(
        "naïve",
        "e\u0301",
        "=\u0338",
        "日本語 ",
        "🤦\u200d♂️",
        "СССР ",
        "ΣΑΣ ",
        "İ",
        "ſ",
        "\u212a",
        "ß",
        "\u3000",
        "\u2028 ",
    ),
    *("▁", "<0x41>", "\ufffd", "\u0600 ", "한국어", "\U00040000", "...", "!!! ?", "(a)", "a|b", "A", "aB", "\u00a0 x"),
]
TEXTS = st.lists(st.one_of(st.sampled_from(NASTY), st.text(max_size=6), st.text("aB1 .'\n", max_size=8))).map("".join)
ATOMS = st.sampled_from(
    [r"\s", r"\S", r"\p{L}", r"\p{N}", "a", " ", r"[^\s\p{L}]", r"[\r\n]", "[a-z'B]", r"\w", r"\W", ".", r"[^\w ]", "B"]
)


def splitter(*parts: Any) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(list(parts))


def by(regex: str, behavior: str = "isolated", invert: bool = False) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(Regex(regex), behavior, invert)


def description_of(pre_tokenizer: Any, normalizer: Any = None) -> dict[str, Any]:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    described: dict[str, Any] = json.loads(tokenizer.to_str())
    return described


def cut(text: str, joined: np.ndarray) -> list[str]:
    raw = text.encode()
    places = [place for place in range(1, len(raw)) if not joined[raw[place - 1], raw[place]]]
    return [raw[start:end].decode() for start, end in zip([0, *places], [*places, len(raw)], strict=True)]


def pieces(text: str, pre_tokenizer: Any, normalizer: Any) -> list[str]:
    normalized = text if normalizer is None else normalizer.normalize_str(text)
    return [piece for piece, _ in pre_tokenizer.pre_tokenize_str(normalized)]


def assert_cuts_change_nothing(text: str, pre_tokenizer: Any, joined: np.ndarray, normalizer: Any = None) -> None:
    of_parts = [piece for part in cut(text, joined) for piece in pieces(part, pre_tokenizer, normalizer)]
    assert of_parts == pieces(text, pre_tokenizer, normalizer)


WAYS = {
    "gpt2": (pre_tokenizers.ByteLevel(add_prefix_space=False), None),
    "a space before": (pre_tokenizers.ByteLevel(add_prefix_space=True), None),
    "qwen": (by(QWEN), normalizers.NFC()),
    "cl100k": (by(CL100K), None),
    "o200k": (by(O200K, "removed", True), None),
    "bloom": (by(BLOOM), None),
    "starcoder": (splitter(pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)), None),
    "digits in a row": (splitter(pre_tokenizers.Digits(), by(r"\p{L}+"), by(r"\s+", "removed")), None),
    "deepseek": (splitter(by(r"\p{N}{1,3}"), by("[一-龥\u3040-ゟ゠-ヿ]+"), by(CL100K)), None),
    "bert": (pre_tokenizers.BertPreTokenizer(), normalizers.BertNormalizer()),
    "bert, cased": (pre_tokenizers.BertPreTokenizer(), normalizers.BertNormalizer(lowercase=False)),
    "lowercase": (pre_tokenizers.Whitespace(), normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])),
    "metaspace": (pre_tokenizers.Metaspace(), normalizers.NFKC()),
    "xlm-roberta": (
        splitter(pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()),
        normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]),
    ),
    "punctuation": (splitter(pre_tokenizers.Punctuation(), pre_tokenizers.WhitespaceSplit()), None),
}


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=80)
@given(text=TEXTS)
def test_parts_are_split_as_the_whole_is(way: str, text: str) -> None:
    pre_tokenizer, normalizer = WAYS[way]
    joined = bytes_never_cut(description_of(pre_tokenizer, normalizer))
    assert joined is not None
    assert len(cut("one two", joined)) == 2
    assert_cuts_change_nothing(text, pre_tokenizer, joined, normalizer)


@st.composite
def regexes(draw: st.DrawFn) -> str:
    part = st.builds(
        "{}{}".format,
        st.one_of(ATOMS, st.builds("(?:{}|{}{})".format, ATOMS, ATOMS, ATOMS), st.builds("(?i:{})".format, ATOMS)),
        st.sampled_from(["", "", "+", "?", "*", "{1,2}", "++", "?+", "+?", "{2}", "{1}+", "{2,}"]),
    )
    ahead = st.builds("{}{}".format, st.sampled_from(["(?!", "(?="]), ATOMS).map(lambda text: text + ")")
    branch = st.lists(st.one_of(part, part, part, ahead, st.just("$")), min_size=1, max_size=3).map("".join)
    return "|".join(draw(st.lists(branch, min_size=1, max_size=4)) + draw(st.sampled_from([[], [r"\s+"], ["[^a]"]])))


@settings(max_examples=250)
@given(
    regex=regexes(),
    behavior=st.sampled_from([("isolated", False), ("isolated", True), ("removed", False), ("removed", True)]),
    first=st.one_of(st.none(), regexes()),
    texts=st.lists(TEXTS, min_size=1, max_size=6),
)
def test_no_regex_is_cut_where_it_looks(
    regex: str, behavior: tuple[str, bool], first: str | None, texts: list[str]
) -> None:
    last = by(regex, *behavior)
    pre_tokenizer = last if first is None else splitter(by(first), last)
    joined = bytes_never_cut(description_of(pre_tokenizer))
    for text in texts if joined is not None else []:
        assert_cuts_change_nothing(text, pre_tokenizer, joined)


@pytest.mark.parametrize(
    "regex",
    [
        r"(?<=a)b|.",
        r"\bx|.",
        "^a|.",
        r"(a)\1|.",
        "a*",
        "(?!a)",
        "[a&&b]|.",
        "[[:alpha:]]|.",
        r"\X",
        "(?i)a|.",
        "a{1,2}?|.",
    ],
)
def test_what_can_not_be_analysed_is_not_cut(regex: str) -> None:
    assert bytes_never_cut(description_of(by(regex))) is None


@pytest.mark.parametrize(
    "pre_tokenizer",
    [
        None,
        by(" ", "merged_with_previous"),
        pre_tokenizers.Punctuation("contiguous"),
        pre_tokenizers.Metaspace(split=False),
        splitter(pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="first")),
        pre_tokenizers.FixedLength(3),
        by(r"\p{L}+ "),
    ],
)
def test_a_splitter_without_a_sure_border_is_not_cut(pre_tokenizer: Any) -> None:
    described = description_of(by(BLOOM)) | {"pre_tokenizer": None}
    if pre_tokenizer is not None:
        described = description_of(pre_tokenizer)
    assert bytes_never_cut(described) is None


@pytest.mark.parametrize("normalizer", [normalizers.Strip(), normalizers.Replace("a", " "), normalizers.Prepend("x")])
def test_a_normalizer_that_moves_borders_is_not_cut(normalizer: Any) -> None:
    assert bytes_never_cut(description_of(by(BLOOM), normalizer)) is None


def added(content: str, **settings: bool) -> dict[str, Any]:
    defaults = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    return {"id": 300, "content": content} | defaults | settings


def test_an_added_token_is_never_cut() -> None:
    described = description_of(by(BLOOM))
    joined = bytes_never_cut(described | {"added_tokens": [added("<a b>")]})
    assert joined is not None
    assert cut("x <a b> y", joined) == ["x", " <a b>", " y"]
    for setting in ("lstrip", "rstrip", "single_word"):
        assert bytes_never_cut(described | {"added_tokens": [added("x", **{setting: True})]}) is None


FALCON = splitter(
    pre_tokenizers.Punctuation("contiguous"),
    pre_tokenizers.ByteLevel(False),
    pre_tokenizers.Digits(),
    by("[0-9][0-9][0-9]"),
)
BYTES_ALONE = pre_tokenizers.ByteLevel(False, use_regex=False)
PIECEWISE = {
    "gpt2": (pre_tokenizers.ByteLevel(add_prefix_space=False), None),
    "qwen": (splitter(by(QWEN), BYTES_ALONE), normalizers.NFC()),
    "cl100k": (splitter(by(CL100K), BYTES_ALONE), None),
    "o200k": (splitter(by(O200K), BYTES_ALONE), normalizers.NFKC()),
    "bloom": (splitter(by(BLOOM), BYTES_ALONE), None),
    "starcoder": (splitter(pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(False)), None),
    "falcon": (FALCON, None),
}


def split_here(splitting: PieceSplitter, words: list[str]) -> list[list[str]]:
    row = "".join(word + "\1" for word in words).encode()
    text, is_start = splitting.split(np.frombuffer(row, np.uint8))
    ends = np.append(np.flatnonzero(is_start), len(text))
    pieces = [text[begin:end].tobytes() for begin, end in pairwise(ends)]
    found: list[list[str]] = []
    for word in words:
        found.append([])
        while len(b"".join(p.encode() for p in found[-1])) < len(word.encode()):
            found[-1].append(pieces.pop(0).decode())
    assert not pieces
    return found


def of_clear_characters(splitting: PieceSplitter, words: list[str]) -> list[str]:
    """The words without the characters that are left to the library."""
    known = len(splitting.unclear)
    kept = ("".join(c for c in word if ord(c) < known and not splitting.unclear[ord(c)]) for word in words)
    return [word for word in kept if word]


def as_characters(pre_tokenizer: Any, word: str) -> list[str]:
    """The library's pieces, their bytes decoded."""
    pieces = [piece for piece, _ in pre_tokenizer.pre_tokenize_str(word)]
    return [bytes(BYTE_OF_CHARACTER[character] for character in piece).decode() for piece in pieces]


@pytest.mark.parametrize("way", PIECEWISE)
@settings(max_examples=100)
@given(words=st.lists(TEXTS, max_size=6))
def test_words_are_split_here_as_by_tokenizers(way: str, words: list[str]) -> None:
    pre_tokenizer, normalizer = PIECEWISE[way]
    splitting = PieceSplitter(description_of(pre_tokenizer, normalizer))
    words = of_clear_characters(splitting, words)
    assert split_here(splitting, words) == [as_characters(pre_tokenizer, word) for word in words]
    if normalizer is not None:
        assert [normalizer.normalize_str(word) for word in words] == words


@settings(max_examples=250)
@given(regex=regexes(), first=st.one_of(st.none(), regexes()), words=st.lists(TEXTS, min_size=1, max_size=6))
def test_any_regex_splits_here_as_in_tokenizers(regex: str, first: str | None, words: list[str]) -> None:
    pre_tokenizer = splitter(*([by(first)] if first else []), by(regex), BYTES_ALONE)
    try:
        splitting = PieceSplitter(description_of(pre_tokenizer))
    except Unanalysed:
        return
    words = of_clear_characters(splitting, words)
    assert split_here(splitting, words) == [as_characters(pre_tokenizer, word) for word in words]


@pytest.mark.parametrize("regex", [r"a$|[a\n]+", r"a\z|[a\n]+", r"a\Z|[a\n]+", r"a++a|.", r"(?>a|ab)b|.", "(?i:S)+|."])
def test_line_ends_and_greed_mean_the_same_here(regex: str) -> None:
    pre_tokenizer = splitter(by(regex), BYTES_ALONE)
    words = ["a", "a\n", "a\na", "aa\n\n", "aab", "abb", "sS"]
    splitting = PieceSplitter(description_of(pre_tokenizer))
    words = of_clear_characters(splitting, words)
    assert split_here(splitting, words) == [as_characters(pre_tokenizer, word) for word in words]


def test_most_characters_of_european_text_are_split_here() -> None:
    for way in ("gpt2", "qwen", "cl100k", "o200k", "bloom", "starcoder"):
        unclear = PieceSplitter(description_of(*PIECEWISE[way])).unclear
        assert not unclear[[ord(character) for character in "aZ09 \n\t.,'’“”–—éñŁ"]].any(), way


@pytest.mark.parametrize(
    ("pre_tokenizer", "normalizer"),
    [
        (pre_tokenizers.ByteLevel(add_prefix_space=True), None),
        (pre_tokenizers.ByteLevel(add_prefix_space=False), normalizers.Lowercase()),
        (splitter(by(BLOOM, "removed"), BYTES_ALONE), None),
        (splitter(BYTES_ALONE, by(r"\p{L}+")), None),
        (splitter(by("(?:a*)+b"), BYTES_ALONE), None),
        (by(BLOOM), None),
        (pre_tokenizers.Metaspace(), None),
    ],
)
def test_what_changes_characters_is_not_split_here(pre_tokenizer: Any, normalizer: Any) -> None:
    with pytest.raises(Unanalysed):
        PieceSplitter(description_of(pre_tokenizer, normalizer))


SENTENCES = [
    "the priest was descending the stairs, and the stairs were steep\n\nthe nation's tradition  of attention",
    "a connection between nations; the question (of tradition) was   attended to.\n\tthe end: 1,000 naïve cafés",
]


@cache
def trained(kind: str) -> str:
    """A small tokenizer of each kind that gigatoken does not read."""
    trainer: Any
    if kind == "BPE":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = splitter(by(BLOOM), pre_tokenizers.ByteLevel(False, use_regex=False))
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=340, initial_alphabet=alphabet, show_progress=False)
    elif kind == "WordPiece":
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer()
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=120, special_tokens=["[UNK]", "[SEP]"], show_progress=False)
    else:
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(
            vocab_size=90, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False
        )
    tokenizer.train_from_iterator(SENTENCES * 3, trainer)
    return str(tokenizer.to_str())


@pytest.mark.parametrize("parse", [False, True])
@pytest.mark.parametrize("kind", ["BPE", "WordPiece", "Unigram"])
@settings(max_examples=30)
@given(texts=st.lists(TEXTS | st.sampled_from(SENTENCES), min_size=1, max_size=5))
def test_ids_are_those_of_tokenizers(kind: str, parse: bool, texts: list[str]) -> None:
    fast, true = word_by_word_encoder(trained(kind), parse), TokenizersEncoder(trained(kind), parse)
    for in_order in (texts, [*texts[::-1], "a [SEP] b", "<unk>"]):
        given_texts = [text.encode() for text in in_order]
        for found, expected in zip(fast.encode(given_texts), true.encode(given_texts), strict=True):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", ["BPE", "WordPiece", "Unigram"])
def test_such_a_tokenizer_is_counted_word_by_word(kind: str, tmp_path: Path) -> None:
    vocabulary = Vocabulary.from_json(trained(kind))
    choice = choose_library(vocabulary, [b"some text"], False)
    assert choice.library == "tokenizers word by word"
    assert choice.reason is not None
    assert choice.speed is None
    source = write_jsonl(tmp_path / "t.jsonl", SENTENCES)
    with open_engine("local", 1) as engine:
        counts = count_corpus([source], vocabulary, tmp_path / "counts", engine=engine)
    assert as_counters(counts) == plain_counts(SENTENCES, without_special_parsing(vocabulary))
    assert counts.manifest["tokenized_with"] == "tokenizers word by word"
    assert counts.manifest["tokenizing_takes"] is None
    assert "gigatoken" not in counts.manifest["versions"]


def test_qwens_pattern_as_gguf_files_have_it_is_read_by_gigatoken() -> None:
    described = json.loads(byte_level_vocabulary(300).to_json())
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": QWEN}, "behavior": "Isolated", "invert": False}
    described["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, level]}
    described["normalizer"] = {"type": "NFC"}
    tokenizer_json = json.dumps(described)
    assert choose_library(Vocabulary.from_json(tokenizer_json), [], False).library == "gigatoken"
    texts = ["".join(NASTY).encode(), b"the 1234 and {1,1}|"]
    found, expected = (way(tokenizer_json, False).encode(texts).ids for way in (GigatokenEncoder, TokenizersEncoder))
    np.testing.assert_array_equal(found, expected)

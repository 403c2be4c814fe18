"""Damaged and hostile tokenizers: one line, or a tokenizer whose ids are the same for every library and every time."""

from __future__ import annotations

import json
import os
import string
import threading
from random import Random
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from detoklens.corpus.encoding import TokenizersEncoder, choose_library, open_encoder
from detoklens.errors import DetokLensError
from detoklens.loading import load_vocabulary
from detoklens.tokens.tokenizer_files import library_call
from detoklens.tokens.vocabulary import BYTE_OF_CHARACTER
from tests.fuzz.budget import cases
from tests.fuzz.damage import as_json, changed_json, cut_or_doubled, deeply_nested, flipped
from tests.fuzz.memory import bounded_memory

LARGEST_GROWTH = 500_000  # kB that the whole file may add to the process; a case that asks for GBs is seen
MERGES = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("i", "n"), ("Ġ", "a"), ("Ġa", "n"), ("Ġan", "d")]
SAMPLE = [b"the sand and the sea", "naïve – 東京".encode(), b"", b"in  an\n\tinn 1234"]
UNSEEN = [b"<|endoftext|> another thing", b"Thin ice, the end!", "über 🤦 ▁x".encode(), b" a a a\r\n", b"q" * 300]

PRE_TOKENIZERS: list[Any] = [
    {"type": "FixedLength", "length": 0},
    {"type": "FixedLength", "length": 3},
    {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": False},
    {"type": "Split", "pattern": {"Regex": "(a|aa)+$"}, "behavior": "Isolated", "invert": True},
    {"type": "Split", "pattern": {"String": ""}, "behavior": "Removed", "invert": False},
    {"type": "CharDelimiterSplit", "delimiter": "a"},
    {"type": "Digits", "individual_digits": True},
    {"type": "Sequence", "pretokenizers": []},
]
NORMALIZERS: list[Any] = [
    {"type": "Replace", "pattern": {"String": ""}, "content": "xx"},
    {"type": "Replace", "pattern": {"Regex": "."}, "content": "the"},
    {"type": "Prepend", "prepend": ""},
    {"type": "Prepend", "prepend": "▁"},
    {"type": "Strip", "strip_left": True, "strip_right": True},
    {"type": "Precompiled", "precompiled_charsmap": "AAAA"},
    {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": True,
        "strip_accents": None,
        "lowercase": True,
    },
    {"type": "Sequence", "normalizers": []},
]
ADDED = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}


def byte_level() -> Tokenizer:
    tokens = ["<|endoftext|>", *BYTE_OF_CHARACTER, *(left + right for left, right in MERGES)]
    tokenizer = Tokenizer(models.BPE({token: rank for rank, token in enumerate(tokens)}, MERGES))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    return tokenizer


def with_byte_fallback() -> Tokenizer:
    tokens = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *string.ascii_lowercase, "th", "the", "▁the"]
    merges = [("t", "h"), ("th", "e"), ("▁", "the")]
    vocabulary = {token: rank for rank, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.ByteFallback()
    return tokenizer


def word_pieces() -> Tokenizer:
    tokens = ["[UNK]", "the", "##nd", "sa", "##a", "se", "in", "##n", "and", *string.ascii_lowercase]
    tokenizer = Tokenizer(models.WordPiece({token: rank for rank, token in enumerate(tokens)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def unigram() -> Tokenizer:
    pieces = [("<unk>", 0.0), ("▁the", -1.0), ("▁", -2.0), ("an", -2.5), *((c, -4.0) for c in string.ascii_lowercase)]
    tokenizer = Tokenizer(models.Unigram(pieces, 0, False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return tokenizer


BASES = [json.loads(make().to_str()) for make in (byte_level, byte_level, with_byte_fallback, word_pieces, unigram)]


def damaged_file(random: Random) -> bytes:
    """A tokenizer.json with one kind of damage."""
    base = random.choice(BASES)
    match random.randrange(6):
        case 0:
            return flipped(random, as_json(base), random.choice([1, 1, 3]))
        case 1:
            return cut_or_doubled(random, as_json(base))
        case 2:
            return deeply_nested(random, as_json(base), random.choice([b"null", b"false", b'"BPE"', b"[]"]))
        case 3:
            return as_json(with_odd_parts(random, base))
        case _:
            return as_json(changed_json(random, base, random.choice([1, 1, 2, 5])))


def with_odd_parts(random: Random, base: Any) -> Any:
    """Parts that the library knows, put together as no model would."""
    odd = json.loads(json.dumps(base))
    if random.random() < 0.5:
        odd["pre_tokenizer"] = random.choice(PRE_TOKENIZERS)
    if random.random() < 0.5:
        odd["normalizer"] = random.choice(NORMALIZERS)
    if random.random() < 0.5:
        odd["model"] |= random.choice(
            [
                {"dropout": random.choice([0.0, 0.5, 1.0, 2.0])},
                {"continuing_subword_prefix": random.choice(["##", "", "Ġ"])},
                {"end_of_word_suffix": random.choice(["</w>", "", "e"])},
                {"ignore_merges": True},
                {"byte_fallback": True, "unk_token": "the"},
                {"max_input_chars_per_word": 0},
            ]
        )
    contents = random.choice([[], ["<x>"], ["the", "<x>", "<|y|>"], [""], ["é", " "], ["z" * 2_000]])
    flags = {name: random.random() < 0.3 for name in ADDED}
    odd["added_tokens"] += [{"id": random.randrange(400), "content": content} | flags for content in contents]
    return odd


def check(content: bytes, path: Any) -> None:
    """Read it, ask all of it, and compare each way to the same ids."""
    path.write_bytes(content)
    vocabulary = load_vocabulary(path)
    assert len(vocabulary.texts()) == vocabulary.size
    vocabulary.merges()
    texts = [text.decode() for text in (*SAMPLE, *UNSEEN)]
    ids = [vocabulary.encode(text) for text in texts]
    assert [vocabulary.encode(text) for text in texts] == ids
    assert all(0 <= token < vocabulary.size for row in ids for token in row)
    choice = choose_library(vocabulary, SAMPLE, parse_special_tokens=True)
    (path.parent / "written.json").write_text(vocabulary.to_json(), encoding="utf-8")
    assert load_vocabulary(path.parent / "written.json").fingerprint == vocabulary.fingerprint
    encoder = open_encoder(choice.library, path.parent / "written.json", parse_special_tokens=True)
    for text, row in zip((*SAMPLE, *UNSEEN), ids, strict=True):
        assert encoder.encode([text]).ids.tolist() == row, (choice, text)


def test_the_undamaged_ones_are_read(tmp_path):
    for base in BASES:
        check(as_json(base), tmp_path / "tokenizer.json")


def test_damaged_tokenizers_are_one_line_or_give_the_same_ids_every_way(tmp_path):
    with bounded_memory(LARGEST_GROWTH):
        for number, random in enumerate(cases(500)):
            content = damaged_file(random)
            try:
                check(content, tmp_path / "tokenizer.json")
            except DetokLensError:
                continue
            except BaseException as error:
                raise AssertionError(f"case {number}: {type(error).__name__}: {str(error)[:1000]}") from error


def test_a_panic_while_encoding_is_one_line_and_nothing_else(tmp_path, capfd):
    """A normalizer that prepends nothing: the trial on reading passes, this text does not."""
    odd = json.loads(byte_level().to_str()) | {"normalizer": {"type": "Prepend", "prepend": ""}}
    (tmp_path / "tokenizer.json").write_bytes(as_json(odd))
    vocabulary = load_vocabulary(tmp_path / "tokenizer.json")
    encoder = TokenizersEncoder(vocabulary.to_json(), parse_special_tokens=False)
    for encode in (lambda: vocabulary.encode("the sand"), lambda: encoder.encode([b"the sand"])):
        with pytest.raises(DetokLensError, match="this tokenizer can't read"):
            encode()
    assert capfd.readouterr().err == ""


def test_what_other_threads_write_while_a_library_runs_is_kept_in_order(capfd):
    def refuse(reason: str) -> DetokLensError:
        return DetokLensError(reason)

    os.write(2, b"before ")
    with library_call(refuse), library_call(refuse):
        writer = threading.Thread(target=os.write, args=(2, b"meanwhile "))
        writer.start()
        writer.join()
    with pytest.raises(DetokLensError, match="lost"), library_call(refuse):
        panic()
    os.write(2, b"after")
    assert capfd.readouterr().err == "before meanwhile kept after"


class PanicException(BaseException):
    """As the libraries raise it."""


def panic() -> None:
    os.write(2, b"kept \nthread 'main' (7) panicked at src/lib.rs:1:2:\nlost\nnote: run with RUST_BACKTRACE=1\n")
    raise PanicException("lost")

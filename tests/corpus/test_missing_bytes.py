"""A byte-level tokenizer that lacks single bytes: read by the fast library, ids as the true one gives them."""

import json
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from detoklens.corpus.count import count_corpus
from detoklens.corpus.encoding import GigatokenEncoder, TokenizersEncoder, add_placeholders, choose_library
from detoklens.engines import open_engine
from detoklens.tokens import Vocabulary
from detoklens.tokens.vocabulary import BYTE_OF_CHARACTER
from tests.corpus.conftest import byte_level_vocabulary
from tests.corpus.plain_counting import write_jsonl

MISSING = {0x04, 0x06, 0x1D, ord("q"), 0xC3, 0xA9, 0xF1, 0xF2}
NASTY = ["the\x04 the", "téhe", "q", "é", "naïve", "\U00040000", "\x1d", "", "  and", "\r\n\n", "🤦\u200d♂️", "<|end|>"]
TEXTS = st.lists(
    st.lists(st.one_of(st.sampled_from(NASTY), st.text(max_size=8)), max_size=6).map("".join), min_size=1, max_size=6
)


def lacking(vocabulary: Vocabulary, missing: set[int]) -> Vocabulary:
    """The same tokenizer without tokens for some bytes."""
    description = json.loads(vocabulary.to_json())
    model = description["model"]
    gone = {character for character, byte in BYTE_OF_CHARACTER.items() if byte in missing}
    model["vocab"] = {token: number for token, number in model["vocab"].items() if token not in gone} | {"<|end|>": 300}
    end = {"id": 300, "content": "<|end|>", "special": True, "normalized": False}
    added = end | dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
    return Vocabulary.from_json(json.dumps(description | {"added_tokens": [added]}))


@pytest.fixture(scope="module")
def gappy() -> Vocabulary:
    return lacking(byte_level_vocabulary(300), MISSING)


@pytest.fixture(scope="module")
def smollm2(corpus_folder: Path) -> Vocabulary:
    path = corpus_folder.parent / "tokenizers" / "smollm2.json.zst"
    if not path.is_file():
        pytest.skip(f"NOT TESTED ON REAL DATA: {path.name} is missing beside the repository (../shared)")
    with path.open("rb") as file:
        return Vocabulary.from_json(zstandard.ZstdDecompressor().stream_reader(file).read().decode())


def assert_same_ids(vocabulary: Vocabulary, texts: list[str], parse: bool) -> None:
    given_texts = [text.encode() for text in texts]
    fast, true = (
        encoder(vocabulary.to_json(), parse).encode(given_texts) for encoder in (GigatokenEncoder, TokenizersEncoder)
    )
    np.testing.assert_array_equal(fast.ids, true.ids)
    np.testing.assert_array_equal(fast.offsets, true.offsets)


@pytest.mark.parametrize("parse", [False, True])
@settings(max_examples=60)
@given(texts=TEXTS)
def test_ids_are_the_true_ones_whatever_the_text(gappy: Vocabulary, parse: bool, texts: list[str]) -> None:
    assert_same_ids(gappy, texts, parse)


def test_a_text_with_a_missing_byte_is_joined_as_the_true_library_joins_it(gappy: Vocabulary) -> None:
    """The unknown byte falls out and its neighbours merge: a placeholder left standing would part them."""
    the = gappy.id("the")
    assert gappy.encode("téhe") == [the]
    ids, offsets = GigatokenEncoder(gappy.to_json(), False).encode([b"a", "téhe".encode(), b"the"])
    assert ids.tolist() == [gappy.id("a"), the, the]
    assert offsets.tolist() == [0, 1, 2, 3]


def test_placeholders_lie_beyond_the_vocabulary(gappy: Vocabulary) -> None:
    description = json.loads(gappy.to_json())
    assert add_placeholders(description) == gappy.size == 301
    assert sorted(description["model"]["vocab"].values())[-len(MISSING) :] == list(range(301, 301 + len(MISSING)))
    whole = json.loads(byte_level_vocabulary(300).to_json())
    assert add_placeholders(whole) is None


def test_counts_hold_no_placeholder(gappy: Vocabulary, tmp_path: Path) -> None:
    texts = ["the and", "téhe q", "q", " and the\x1d"]
    source = write_jsonl(tmp_path / "t.jsonl", texts)
    with open_engine("local", 1) as engine:
        counts = count_corpus([source], gappy, tmp_path / "counts", engine=engine)
    assert counts.manifest["tokenized_with"] == "gigatoken"
    assert counts.manifest["tokenizing_takes"] is None
    ids = [token for text in texts for token in gappy.encode(text)]
    np.testing.assert_array_equal(counts.tokens, np.bincount(ids, minlength=gappy.size))


def test_smollm2_is_counted_at_full_speed(smollm2: Vocabulary, tiny_text: Path) -> None:
    text = tiny_text.read_text()
    assert choose_library(smollm2, [text[:4000].encode()], False) == ("gigatoken", None, None)
    assert_same_ids(smollm2, [text, "x\x04y", "", "\U00040000 ok \x1d", text[:500] + "\x06" + text[500:900]], False)

"""Vocabularies of three sizes that need no download, and the real one of GPT-2 where it is at hand."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from detoklens.tokens import Vocabulary
from detoklens.tokens.vocabulary import BYTE_OF_CHARACTER

SIZES = (7, 50_257, 256_000)
MERGES = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("i", "n"), ("Ġ", "a"), ("Ġa", "n"), ("Ġan", "d"), ("o", "u")]


def byte_level_vocabulary(size: int) -> Vocabulary:
    """Byte-level BPE with a few merges, its ids spread over the whole range up to the last; the rest is never met."""
    tokens = [*BYTE_OF_CHARACTER, *(left + right for left, right in MERGES)]
    step = (size - 1) // (len(tokens) - 1)
    ids = {token: size - 1 - rank * step for rank, token in enumerate(tokens)}
    unmet = sorted(set(range(size)) - set(ids.values()))
    tokenizer = Tokenizer(models.BPE(ids | {f"unmet{token_id}": token_id for token_id in unmet}, MERGES))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return Vocabulary(tokenizer)


def seven_token_vocabulary() -> Vocabulary:
    """a, b, a space, ab, aba and ` a`; any other character is unknown."""
    ids = {"?": 0, "a": 1, "b": 2, " ": 3, "ab": 4, "aba": 5, " a": 6}
    merges = [("a", "b"), ("ab", "a"), (" ", "a")]
    return Vocabulary(Tokenizer(models.BPE(ids, merges, unk_token="?")))


@pytest.fixture(scope="session")
def vocabularies() -> dict[int, Vocabulary]:
    return {7: seven_token_vocabulary()} | {size: byte_level_vocabulary(size) for size in SIZES[1:]}


@pytest.fixture(scope="session")
def small_vocabulary() -> Vocabulary:
    return byte_level_vocabulary(300)


@pytest.fixture(scope="session")
def gpt2_vocabulary(whisper_folder: Path) -> Vocabulary:
    return Vocabulary.from_folder(whisper_folder)

"""Small random layers with a tokenizer trained on a few lines, the counts of those lines, and fewer words to ask for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from detoklens.corpus.count import count_corpus
from detoklens.corpus.counts import Counts
from detoklens.engines import open_engine
from detoklens.loading import load
from detoklens.measures import words
from detoklens.scores.layer import Layer
from detoklens.tokens import Vocabulary
from tests.layers import random_first_layer, write_gpt2, write_tokenizer

LINES = [
    "Homo sapiens and aliens from Tokyo met in North Korea in the nineteenth century",
    "Michael Jackson and Albert Einstein never drank sodium chloride in the twentieth century",
    "the sapient north wind and the patient south wind met the senior chemist of the century",
] * 3
SHIPPED_WORDS = words.shipped_words


def write_spelled(folder: Path, vocab_size: int = 330, n_heads: int = 3, seed: int = 0) -> Path:
    """A GPT-2 checkpoint with random weights and a byte-level tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder, LINES, vocab_size)
    size = Vocabulary.from_folder(folder).size
    return write_gpt2(folder, random_first_layer(n_heads=n_heads, vocab_size=size, seed=seed, dtype="float32"))


@contextmanager
def shipping_few_words() -> Iterator[None]:
    """The shipped word list is a twentieth of itself: ranking its words is most of what small models are asked.

    It has “sapiens”, the word of two pieces that reports of these models begin with. One inside another changes nothing:
    a fixture may be made within a test that has few words already.
    """
    few = [*SHIPPED_WORDS()[::20], "sapiens"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words, "shipped_words", lambda: few)
        yield


def spelled_layer(folder: Path, **sizes: int) -> Layer:
    return load(write_spelled(folder, **sizes))


def counts_of(layer: Layer, lines: list[str] = LINES) -> Counts:
    """Tokens and bigrams of some lines, counted the slow way."""
    pairs: dict[tuple[int, int], int] = {}
    tokens = np.zeros(layer.vocab_size, np.int64)
    for line in lines:
        ids = layer.vocabulary.encode(line)
        np.add.at(tokens, ids, 1)
        for prefix, suffix in pairwise(ids):
            pairs[suffix, prefix] = pairs.get((suffix, prefix), 0) + 1
    suffixes, prefixes = np.array(list(pairs), np.uint32).T
    return Counts.from_arrays(tokens, suffixes, prefixes, np.array(list(pairs.values())), layer.vocabulary.fingerprint)


def write_counts(folder: Path, model: Path, lines: list[str] = LINES) -> Path:
    """Counts of some lines on disk, by the tokenizer of a model."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "lines.txt").write_text("\n".join(lines), encoding="utf-8")
    with open_engine("local", 1) as engine:
        count_corpus([folder / "lines.txt"], Vocabulary.from_folder(model), folder / "counts", engine=engine)
    return folder / "counts"

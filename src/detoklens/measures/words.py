"""Words, their pieces, and the ranks of preceding pieces: the paper's Table 1, for any list of words.

For a word of pieces a b c, the pairs are (key a, query b) and (key b, query c), and the rank is the key's among all
keys by Tᵉᵉ of the query. A head that joins pieces ranks it near the top; chance is the middle of the vocabulary.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int, Num

from detoklens.errors import DetokLensError, TokenError
from detoklens.measures.ranking import pair_ranks
from detoklens.progress import Watcher
from detoklens.scores.affinity import Affinity
from detoklens.scores.layer import Layer
from detoklens.tokens import Vocabulary


def token_texts(layer: Layer, token_ids: Iterable[int]) -> list[str | None]:
    """The text of each token."""
    if not layer.has_vocabulary:
        return [None for _ in token_ids]
    return [layer.vocabulary.text(int(token_id)) for token_id in token_ids]


def joined_texts(layer: Layer, key_ids: Iterable[int], query_ids: Iterable[int]) -> list[str | None]:
    """The text of each key followed by its query."""
    if not layer.has_vocabulary:
        return [None for _ in key_ids]
    pairs = zip(key_ids, query_ids, strict=True)
    return [layer.vocabulary.join([int(key), int(query)]) for key, query in pairs]


@dataclass(frozen=True)
class SplitWord:
    """A word with its tokens; those in `apart`, unknown and special tokens, are not pieces."""

    word: str
    token_ids: tuple[int, ...]
    apart: frozenset[int] = frozenset()

    def pairs(self) -> Iterator[tuple[int, int, int]]:
        """Adjacent pieces: index of the pair, preceding piece, following piece."""
        for number, pair in enumerate(pairwise(self.token_ids)):
            if self.apart.isdisjoint(pair):
                yield number, *pair


@dataclass(frozen=True)
class WordPairs:
    """All adjacent pairs of pieces of some words: the preceding piece is the key, the following piece the query."""

    words: tuple[str, ...]
    pair: Int[np.ndarray, "pair"]
    keys: Int[np.ndarray, "pair"]
    queries: Int[np.ndarray, "pair"]

    def ahead(self) -> WordPairs:
        """The same pairs with keys and queries exchanged."""
        return WordPairs(self.words, self.pair, self.queries, self.keys)


def given_words(words: Path | Sequence[str] | None) -> list[str]:
    """The words of a file or sequence, each once; the bundled ones for None."""
    if words is None:
        return shipped_words()
    if isinstance(words, Path):
        return listed_words(_text_of(words))
    return list(dict.fromkeys(word.strip() for word in words if word.strip()))


def _text_of(path: Path) -> str:
    wanted = "a word list, one word per line"
    if not path.is_file():
        raise DetokLensError(f"{path}: no such file; pass {wanted}")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DetokLensError(f"{path}: not UTF-8 at byte {error.start}; pass {wanted}, in UTF-8") from error


def shipped_words() -> list[str]:
    """The bundled words, names and chemical substances."""
    return listed_words(files("detoklens.measures").joinpath("words.txt").read_text(encoding="utf-8"))


def listed_words(text: str) -> list[str]:
    """The entries of a word list, one per line, each once; empty lines and lines that start with # are skipped."""
    entries = (line.strip() for line in text.splitlines())
    return list(dict.fromkeys(entry for entry in entries if entry and not entry.startswith("#")))


def fingerprint_of(words: Sequence[str]) -> str:
    """The sha256 of a word list."""
    return sha256("\n".join(words).encode(errors="surrogatepass")).hexdigest()


def split_words(vocabulary: Vocabulary, words: Iterable[str], leading_space: bool = True) -> list[SplitWord]:
    """Each word's tokens with a leading space, as in running text, or without."""
    space = " " if leading_space else ""
    return [SplitWord(word, tuple(vocabulary.encode(space + word)), vocabulary.apart) for word in words]


def word_pairs(split: Sequence[SplitWord]) -> WordPairs:
    """The adjacent pairs of all words with several pieces; an error if there are none."""
    found = [(word.word, *pair) for word in split for pair in word.pairs()]
    if not found:
        raise TokenError(
            f"this tokenizer splits none of the {len(split)} words into known pieces; "
            "pass a list with rarer or longer words"
        )
    words, numbers, keys, queries = zip(*found, strict=True)
    return WordPairs(words, np.array(numbers), np.array(keys), np.array(queries))


WordCheck = Callable[[str], bool]

ONE_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")


def in_list(words: Iterable[str]) -> WordCheck:
    """A check for these words that ignores case and a leading space."""
    known = {word.casefold() for word in words}
    return lambda text: text.removeprefix(" ").casefold() in known


def has_wordfreq() -> bool:
    return find_spec("wordfreq") is not None


def known_to_wordfreq(language: str = "en") -> WordCheck | None:
    """A check for words of a language by the library wordfreq; None if wordfreq is not installed."""
    if not has_wordfreq():
        return None
    zipf_frequency = importlib.import_module("wordfreq").zipf_frequency
    try:
        zipf_frequency("a", language)
    except (LookupError, ValueError) as error:
        raise DetokLensError(f"wordfreq has no language {language!r}; pass another, e.g. en") from error

    def check(text: str) -> bool:
        word = text.removeprefix(" ")
        return bool(ONE_WORD.fullmatch(word)) and zipf_frequency(word, language) > 0

    return check


@dataclass(frozen=True)
class PieceRanks:
    """Each head's rank and score of the preceding piece, and the rank of another word's; NaN with one word."""

    ranks: Int[np.ndarray, "head pair"]
    scores: Float[np.ndarray, "head pair"]
    null_ranks: Num[np.ndarray, "head pair"]


def piece_ranks(affinity: Affinity, pairs: WordPairs, watch: Watcher | None = None) -> PieceRanks:
    """The rank of each preceding piece in each head, and of another word's piece as a null."""
    keys = np.stack([pairs.keys, exchange_keys(pairs.keys)])
    ranks, scores = pair_ranks(affinity, pairs.queries, keys, watch)
    null_ranks = ranks[1] if len(set(pairs.words)) > 1 else np.full(ranks[1].shape, np.nan)
    return PieceRanks(ranks[0], scores[0], null_ranks)


def exchange_keys(keys: Int[np.ndarray, "pair"]) -> Int[np.ndarray, "pair"]:
    """Give each query the key of another pair, by a fixed derangement."""
    order = np.random.default_rng(0).permutation(len(keys))
    exchanged = np.empty_like(keys)
    exchanged[order] = keys[np.roll(order, 1)]
    return exchanged


def rank_summary(found: PieceRanks, vocab_size: int) -> dict[str, Float[np.ndarray, "head"]]:
    """Each head's median ranks and the shares of pairs near the top."""
    ranks = found.ranks
    median = np.median(ranks, axis=1)
    return {
        "median_rank": median,
        "median_share": median / vocab_size,
        "null_median_share": np.median(found.null_ranks, axis=1) / vocab_size,
        "first": (ranks == 1).mean(axis=1),
        "top_1_percent": _among_the_first(ranks, vocab_size // 100),
        "top_10_percent": _among_the_first(ranks, vocab_size // 10),
    }


def _among_the_first(ranks: Int[np.ndarray, "head pair"], number: int) -> Float[np.ndarray, "head"]:
    """The share of ranks up to this number; NaN if the vocabulary is too small."""
    return (ranks <= number).mean(axis=1) if number else np.full(len(ranks), np.nan)

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
from jaxtyping import Float, Int

from detoklens.errors import DetokLensError, TokenError
from detoklens.measures.chance import Interval, medians, over_words
from detoklens.measures.ranking import ALONE, pair_ranks
from detoklens.parallel import Runner
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

    def places_in(self, tokens: Int[np.ndarray, "token"]) -> WordPairs:
        """The same pairs with the places of their tokens in a sorted list that has them all."""
        keys, queries = np.searchsorted(tokens, self.keys), np.searchsorted(tokens, self.queries)
        return WordPairs(self.words, self.pair, keys, queries)


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
    """Each word's tokens with a leading space, as in running text, or without.

    A tokenizer that puts a space before every text (Llama's) is not given a second one.
    """

    def tokens(word: str) -> list[int]:
        found = vocabulary.encode(word)
        adds_space = vocabulary.join(found[:1]).startswith(" ")
        return vocabulary.encode(" " + word) if leading_space and not adds_space else found

    return [SplitWord(word, tuple(tokens(word)), vocabulary.apart) for word in words]


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
TRIES = 100  # to give every member of a class another's token

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


NULLS = 8  # draws of the null within classes
RESAMPLES = 300  # of the words


@dataclass(frozen=True)
class PieceRanks:
    """Each head's rank and score of the preceding piece, and the ranks of other words' pieces."""

    ranks: Int[np.ndarray, "head pair"]
    scores: Float[np.ndarray, "head pair"]
    null_ranks: Int[np.ndarray, "head pair"]
    """Of another word's piece."""
    class_ranks: Int[np.ndarray, "draw head pair"]
    """Of another word's piece of the same orthographic class and frequency bin."""


def piece_ranks(
    affinity: Affinity, pairs: WordPairs, classes: Sequence[Int[np.ndarray, "pair"]], runner: Runner = ALONE
) -> PieceRanks:
    """The rank of each preceding piece in each head, and of other words' pieces as nulls; see `exchange_within`."""
    drawn = [exchange_within(pairs.keys, classes, seed) for seed in range(NULLS)]
    ranks, scores = pair_ranks(
        affinity, pairs.queries, np.stack([pairs.keys, exchange_keys(pairs.keys), *drawn]), runner
    )
    return PieceRanks(ranks[0], scores[0], ranks[1], ranks[2:])


def exchange_keys(keys: Int[np.ndarray, "pair"]) -> Int[np.ndarray, "pair"]:
    """Give each query the key of another pair, by a fixed derangement."""
    order = np.random.default_rng(0).permutation(len(keys))
    exchanged = np.empty_like(keys)
    exchanged[order] = keys[np.roll(order, 1)]
    return exchanged


def exchange_within(
    tokens: Int[np.ndarray, "word"], classes: Sequence[Int[np.ndarray, "word"]], seed: int
) -> Int[np.ndarray, "word"]:
    """Give each word the token of another word of its class.

    Tokens are permuted within the first of `classes`. A word that would keep its own token draws one from its class,
    otherwise from the next, coarser class, otherwise from all words.
    """
    random = np.random.default_rng(seed)
    levels = [*classes, np.zeros(len(tokens), np.int64)]
    dealt = np.arange(len(tokens))
    for one in np.unique(levels[0]):
        members = np.flatnonzero(levels[0] == one)
        dealt[members] = _deranged(tokens, members, random)
    given = tokens[dealt]
    for word in np.flatnonzero(given == tokens):
        pools = (np.flatnonzero((level == level[word]) & (tokens != tokens[word])) for level in levels)
        pool = next((some for some in pools if len(some)), None)
        given[word] = tokens[word if pool is None else random.choice(pool)]
    return given


def _deranged(
    tokens: Int[np.ndarray, "word"], members: Int[np.ndarray, "member"], random: np.random.Generator
) -> Int[np.ndarray, "member"]:
    """A permutation of one class in which as few members as possible keep their token."""
    dealt = random.permutation(members)
    for _ in range(TRIES):
        same = np.flatnonzero(tokens[dealt] == tokens[members])
        if not len(same):
            break
        swapped = dealt.tolist()
        for place, other in zip(same.tolist(), random.integers(len(members), size=len(same)).tolist(), strict=True):
            swapped[place], swapped[other] = swapped[other], swapped[place]
        dealt = np.array(swapped)
    return dealt


def rank_summary(found: PieceRanks, words: Sequence[str], vocab_size: int) -> dict[str, Float[np.ndarray, "head"]]:
    """Each head's median ranks and the shares of pairs near the top; `words` has the word of each pair.

    NaN without another word, or in a vocabulary too small for the share.
    """
    ranks, unknown = found.ranks, np.full(len(found.ranks), np.nan)
    median = np.median(ranks, axis=1)
    null, class_null = np.median(found.null_ranks, axis=1), np.median(found.class_ranks, axis=2).mean(axis=0)
    if len(set(words)) < 2:
        null = class_null = unknown
    return {
        "median_rank": median,
        "median_share": median / vocab_size,
        "null_median_share": np.minimum(null, class_null) / vocab_size,
        "plain_null_median_share": null / vocab_size,
        "class_null_median_share": class_null / vocab_size,
        "first": (ranks == 1).mean(axis=1),
        "top_1_percent": (ranks <= vocab_size // 100).mean(axis=1) if vocab_size >= 100 else unknown,
        "top_10_percent": (ranks <= vocab_size // 10).mean(axis=1) if vocab_size >= 10 else unknown,
    }


def behind_best(ranks: Int[np.ndarray, "head pair"], words: Sequence[str], best: int, vocab_size: int) -> Interval:
    """Each head's median share minus that of the best, with its interval over words, the same for both heads."""
    word = np.unique(words, return_inverse=True)[1]

    def behind(times: Float[np.ndarray, "resample word"]) -> Float[np.ndarray, "resample head"]:
        middle = np.stack([medians(row, times[:, word]) for row in ranks], axis=1)
        return (middle - middle[:, best, None]) / vocab_size

    return over_words(behind, int(word.max()) + 1, RESAMPLES, seed=0)


def null_ratios(found: PieceRanks, words: Sequence[str]) -> Interval:
    """Each head's median rank divided by that of its stronger null, with its interval over words."""
    word = np.unique(words, return_inverse=True)[1]

    def ratios(times: Float[np.ndarray, "resample word"]) -> Float[np.ndarray, "resample head"]:
        by_pair = times[:, word]
        given = (found.ranks, found.null_ranks, *found.class_ranks)
        own, plain, *of_class = (np.stack([medians(row, by_pair) for row in rows], axis=1) for rows in given)
        return own / np.minimum(plain, np.mean(of_class, axis=0))

    if len(set(words)) < 2:
        unknown = np.full(len(found.ranks), np.nan)
        return Interval(unknown, unknown, unknown)
    return over_words(ratios, int(word.max()) + 1, RESAMPLES, seed=0)

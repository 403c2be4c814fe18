"""Which pairs are right, and from which query tokens are they asked? What `Auroc` settles before any score.

Four sources: pairs that a corpus holds, those of them that it holds more often than chance (PMI), the tokenizer's own
merges, and the neighbouring pieces of the words of a list. The last two need no corpus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from detoklens.errors import CountsError, DetokLensError, TokenError
from detoklens.questions.parameters import number_ranges, read_text, whole_numbers
from detoklens.questions.words import words_file

if TYPE_CHECKING:
    from detoklens.corpus.counts import Counts
    from detoklens.measures.auroc import Positives
    from detoklens.scores.layer import Layer
    from detoklens.tokens import Vocabulary

Source = Literal["counts", "merges", "words"]
Kind = Literal["count", "pmi"]
Weights = Literal["count", "one"]


@dataclass(frozen=True)
class GroundTruth:
    """Which pairs are right, and how much each weighs."""

    source: Source
    kind: Kind
    pmi_above: float
    weights: Weights
    words: Path | Sequence[str] | None

    def check(self) -> None:
        """Refuse what can't be asked together."""
        if self.words is not None and self.source != "words":
            words = words_file(self.words)
            raise DetokLensError(f"the word list {words} has no part in the truth {self.source}; take words")
        if not isfinite(self.pmi_above):
            raise DetokLensError(f"a PMI above {self.pmi_above} is no number of bits; give for example 0")
        if self.kind == "pmi" and self.source != "counts":
            raise DetokLensError(f"positives by PMI have no part in the truth {self.source}; they need that of counts")

    def __str__(self) -> str:
        return {
            "counts": f"corpus bigrams of a PMI above {self.pmi_above:g}" if self.kind == "pmi" else "corpus bigrams",
            "merges": "the tokenizer's merges",
            "words": "neighbouring pieces of words",
        }[self.source]

    def settings(self) -> dict[str, Any]:
        """What of it decides the numbers."""
        from detoklens.measures.word_list import fingerprint_of

        named: dict[str, Any] = {"truth": self.source, "weights": self.weights}
        if self.source == "words":
            named["words"] = fingerprint_of(self.listed_words())
        if self.source == "counts":
            named["positives"] = self.kind
        if self.kind == "pmi":
            named["pmi_above"] = self.pmi_above
        return named

    def positives(self, layer: Layer, counts: Counts | None) -> Positives:
        """The pairs themselves."""
        pairs = self._pairs(layer, counts)
        return pairs.equally_weighted() if self.weights == "one" else pairs

    def _pairs(self, layer: Layer, counts: Counts | None) -> Positives:
        from detoklens.measures.auroc import more_than_chance, seen_pairs

        if self.source == "merges":
            return merged_pairs(layer.vocabulary, layer.vocab_size)
        if self.source == "words":
            return neighbouring_pieces(layer.vocabulary, self.listed_words(), layer.vocab_size)
        assert counts is not None
        if self.kind == "count":
            return seen_pairs(counts.bigrams)
        likely = more_than_chance(counts.bigrams, self.pmi_above)
        if len(likely.keys) == 0:
            raise CountsError(f"no pair of these counts has a PMI above {self.pmi_above:g} bits; lower it")
        return likely

    def listed_words(self) -> list[str]:
        from detoklens.measures.word_list import given_words

        return given_words(self.words)


def merged_pairs(vocabulary: Vocabulary, vocab_size: int) -> Positives:
    """The pairs that the tokenizer itself joins into one token, each with weight 1."""
    from detoklens.measures.auroc import from_pairs

    merges = [(right, left) for left, right, _ in vocabulary.merges()]
    if not merges:
        raise TokenError("this tokenizer has no merges to take as ground truth; take counts or words")
    return from_pairs(merges, vocab_size).equally_weighted()


def neighbouring_pieces(vocabulary: Vocabulary, words: Iterable[str], vocab_size: int) -> Positives:
    """The neighbouring pieces of words as they stand after a space, weighted by how many words hold the pair."""
    from detoklens.measures.auroc import from_pairs
    from detoklens.measures.word_list import split_words, word_pairs

    pairs = word_pairs(split_words(vocabulary, words))
    return from_pairs(zip(pairs.queries, pairs.keys, strict=True), vocab_size)


def query_tokens(layer: Layer, named: Sequence[int] | None, pieces: bool) -> list[int]:
    """The query tokens asked about, each once: those named, or all, and of them the pieces if so asked."""
    chosen = set(range(layer.vocab_size)) if named is None else set(named)
    if pieces:
        chosen &= set(layer.vocabulary.word_internal())
    if chosen:
        return sorted(chosen)
    which = "of this vocabulary" if named is None else "that was named"
    raise TokenError(f"no query token is left: none {which} goes on with a word; ask without restricting to pieces")


def read_tokens(texts: Iterable[str]) -> tuple[str | int, ...]:
    """Tokens on the command line: ids (`262` or `10-20,262`), the lines of a file (`@tokens.txt`), or text."""
    return tuple(token for text in texts for token in _read_token(text))


def _read_token(text: str) -> Sequence[str | int]:
    if not _names_a_file(text):
        return _ids_or_text(text)
    lines = read_text(Path(text[1:]), "a file with one token a line").split("\n")
    found = [token for line in lines if line for token in _ids_or_text(line)]
    if not found:
        raise TokenError(f"{text[1:]} names no token; write one a line, as text or by its id")
    return found


def _ids_or_text(text: str) -> Sequence[str | int]:
    return whole_numbers("token ids")(text) if _looks_like_ids(text) else (text,)


def _names_a_file(text: str) -> bool:
    return text.startswith("@") and len(text) > 1


def _looks_like_ids(text: str) -> bool:
    return bool(text) and set(text) <= set("0123456789,-") and text[0].isdecimal()


def spelled_tokens(flag: str) -> Callable[[Sequence[str | int]], list[str]]:
    """A speller of tokens in order: ids that follow each other as one word, a text as it is."""

    def spell(tokens: Sequence[str | int]) -> list[str]:
        words: list[str] = []
        for are_ids, some in groupby(tokens, lambda token: isinstance(token, int)):
            alike = list(some)
            spelled = [number_ranges(alike)] if are_ids else alike  # type: ignore[arg-type]
            words += [word for each in spelled for word in (flag, str(each))]
        return words

    return spell


def can_be_spelled(token: str | int) -> bool:
    """Whether the command line reads this token as what it is."""
    if isinstance(token, int):
        return True
    return bool(token) and token.isprintable() and not _names_a_file(token) and not _looks_like_ids(token)

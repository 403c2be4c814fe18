"""What `detoklens auroc` is asked: which pairs are right, and which query tokens are looked at."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detoklens.cli import asking
from detoklens.cli.auroc_options import Kind, Negatives, Truth, Weight
from detoklens.cli.options import whole_numbers
from detoklens.errors import CountsError, DetokLensError, TokenError

if TYPE_CHECKING:
    from detoklens.analyses.auroc import Positives
    from detoklens.corpus.counts import Counts
    from detoklens.scores.layer import Layer


@dataclass(frozen=True)
class Asked:
    """Which pairs are right."""

    truth: Truth
    kind: Kind
    pmi_above: float
    weight: Weight
    words: Path | None

    def positives(self, layer: Layer, counts: Counts | None) -> Positives:
        """The pairs themselves, or an error that says what is missing."""
        pairs = self._pairs(layer, counts)
        return pairs.equally_weighted() if self.weight is Weight.one else pairs

    def _pairs(self, layer: Layer, counts: Counts | None) -> Positives:
        from detoklens.analyses import auroc

        if self.truth is Truth.merges:
            return auroc.merged_pairs(layer.vocabulary, layer.vocab_size)
        if self.truth is Truth.words:
            return auroc.neighbouring_pieces(layer.vocabulary, self.listed_words(), layer.vocab_size)
        assert counts is not None
        if self.kind is Kind.pmi:
            likely = auroc.more_than_chance(counts.bigrams, self.pmi_above)
            if len(likely.keys) == 0:
                raise CountsError(f"no pair of these counts has a PMI above {self.pmi_above:g} bits; lower --pmi-above")
            return likely
        return auroc.seen_pairs(counts.bigrams)

    def check(self, counts: Counts | None, negatives: Negatives) -> None:
        """Refuse what can't be asked together, before anything is computed."""
        if self.truth is Truth.counts and counts is None:
            raise CountsError(
                "no counts were given; add --counts COUNTS (made by `detoklens count`), or judge without a corpus by "
                "--truth merges or --truth words"
            )
        if negatives is Negatives.matched and counts is None:
            raise CountsError("--negatives matched needs to know how frequent tokens are; add --counts COUNTS")
        if self.words is not None and self.truth is not Truth.words:
            raise DetokLensError(f"--words {self.words} has no part in --truth {self.truth}; add --truth words")
        if not isfinite(self.pmi_above):
            raise DetokLensError(f"--pmi-above {self.pmi_above} is no number of bits; give for example 0")
        if self.kind is Kind.pmi and self.truth is not Truth.counts:
            raise DetokLensError(f"--positives pmi has no part in --truth {self.truth}; it needs --truth counts")

    def listed_words(self) -> list[str]:
        from detoklens.analyses.word_list import listed_words, shipped_words

        if self.words is None:
            return shipped_words()
        return listed_words(asking.read_text(self.words, "a word list, one word a line"))

    def options(self) -> dict[str, Any]:
        """What of it decides the numbers."""
        named: dict[str, Any] = {"truth": self.truth.value, "weights": self.weight.value}
        if self.truth is Truth.words:
            named["words"] = sha256("\n".join(self.listed_words()).encode()).hexdigest()
        if self.truth is Truth.counts:
            named["positives"] = self.kind.value
        if self.kind is Kind.pmi:
            named["pmi_above"] = self.pmi_above
        return named


def query_tokens(layer: Layer, tokens: list[str], pieces: bool) -> list[int]:
    """The query tokens asked about, each once, by id: those named, or all, and of them the pieces if so asked."""
    from detoklens.analyses.auroc import word_internal

    chosen = {token for text in tokens for token in named_tokens(layer, text)} or set(range(layer.vocab_size))
    if pieces:
        chosen &= set(word_internal(layer.vocabulary))
    if not chosen:
        raise TokenError("no query token is left: none of those named by --tokens goes on with a word; drop --pieces")
    return sorted(chosen)


def named_tokens(layer: Layer, text: str) -> list[int]:
    """Ids (`262` or `10-20,262`), the lines of a file (`@tokens.txt`), or a token as text, its space included."""
    if text.startswith("@") and len(text) > 1:
        lines = asking.read_text(Path(text[1:]), "a file with one token a line").split("\n")
        found = [token for line in lines if line for token in _ids_or_token(layer, line)]
        if not found:
            raise TokenError(f"{text[1:]} names no token; write one a line, as text or by its id")
        return found
    return _ids_or_token(layer, text)


def _ids_or_token(layer: Layer, text: str) -> list[int]:
    if text and set(text) <= set("0123456789,-") and text[0].isdecimal():
        ids = whole_numbers(text, "token ids") or []
        layer.check_tokens(ids)
        return ids
    return [layer.token_id(text)]

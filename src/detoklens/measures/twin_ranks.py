"""Vectors of words after the first block: unchanged, in the controls, and with one part of the layer ablated.

[BOS, p₁, …, p_k] is compared with [BOS, c] for all candidates c, at the last position of each. With nothing else in the
text, layer 0 is a closed form of these few tokens. Each condition changes one thing:

    null          the first piece is another word's         last_piece    [BOS, p_k] alone
    first_piece   [BOS, p₁] alone                           additive      what the sum of its pieces would give
    cut_L0Hh      head h's attention from the last piece to the pieces before it is 0, not renormalised
    without_t     the scores without term t                 only_t        the scores of term t alone
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from detoklens.measures.twin_chains import Chains
from detoklens.measures.twins import Candidates, add_means, mean_over_partners, partner_texts
from detoklens.parallel import thread_map
from detoklens.scores.block import LastPlace, block_output, last_place, stream_after_attention
from detoklens.scores.factors import Common, biases, means, token_shares
from detoklens.scores.layer import Layer
from detoklens.weights.first_layer import MlpSublayer
from detoklens.wording import head_name

ROWS = 1024  # texts per block: with four tokens and a width of 4,096, an array takes 64 MB
ATTENTION, BLOCK = "attention", "block"

Look = Callable[[LastPlace], Float[np.ndarray, "head text key"]]
Rows = Float[np.ndarray, "text d_model"]


@dataclass(frozen=True)
class Condition:
    """A name, the pieces of the texts, and the attention of the last position."""

    name: str
    pieces: Int[np.ndarray, "word piece"]
    look: Look = LastPlace.attention
    partners: Int[np.ndarray, "word partner"] | None = None
    """Partners of the additive control; None for all other conditions."""
    null: Int[np.ndarray, "word piece"] | None = None
    """The null's pieces, if the same ablation is applied to the null."""


@dataclass(frozen=True)
class ClosedWorld:
    """The first layer on texts of a BOS token, if there is one, and a few pieces."""

    layer: Layer
    beginning: tuple[int, ...]
    rest: MlpSublayer | None
    """The MLP of the block; None if unsupported, so only vectors after the attention are known."""
    common: Common
    """The common part of queries and keys, by which terms are split (see `scores.terms`)."""

    @classmethod
    def of(cls, layer: Layer, beginning: tuple[int, ...], rest: MlpSublayer | None) -> ClosedWorld:
        """Without learned positions, terms are split by the mean query and key of the vocabulary."""
        if layer.positions == "learned":
            return cls(layer, beginning, rest, biases(layer.weights, layer.folded))
        shares = token_shares("vocabulary", layer.vocab_size)
        return cls(layer, beginning, rest, means(layer.weights, layer.folded, layer.scales.bare_tokens(), shares))

    @property
    def places(self) -> tuple[str, ...]:
        return (ATTENTION,) if self.rest is None else (ATTENTION, BLOCK)

    def vectors(
        self, pieces: Int[np.ndarray, "word piece"], look: Look = LastPlace.attention, threads: int = 1
    ) -> dict[str, Rows]:
        """The residual stream at the last position of every text, after the attention and after the block."""
        weights = self.layer.weights
        shape = len(pieces), weights.token_embeddings.shape[1]
        found = {place: np.empty(shape, weights.token_embeddings.dtype) for place in self.places}

        def fill(begin: int) -> None:
            block = slice(begin, begin + ROWS)
            with np.errstate(over="ignore", invalid="ignore"):  # `standardised` refuses what overflows
                seen = last_place(self.layer, self._texts(pieces[block]), self.common)
                written = seen.attention_output(look(seen))
                found[ATTENTION][block] = stream_after_attention(weights, self.rest, seen.stream, written)
                if self.rest is not None:
                    found[BLOCK][block] = block_output(weights, self.rest, seen.stream, written)

        list(thread_map(fill, range(0, len(pieces), ROWS), threads))
        return found

    def condition_vectors(self, condition: Condition, threads: int = 1) -> dict[str, Rows]:
        """The vectors of a condition's words, after the attention and after the block."""
        pieces, partners = condition.pieces, condition.partners
        found = self.vectors(pieces, condition.look, threads)
        if partners is None:
            return found
        texts = partner_texts(pieces, partners)
        means = [
            (rows, mean_over_partners(some, lambda unique: self.vectors(unique, condition.look, threads)))
            for rows, some in texts
        ]
        return {
            place: add_means(found[place], partners, [(rows, mean[place]) for rows, mean in means])
            for place in self.places
        }

    def _texts(self, pieces: Int[np.ndarray, "word piece"]) -> Int[np.ndarray, "word token"]:
        beginning = np.tile(np.asarray(self.beginning, np.int64), (len(pieces), 1))
        return np.concatenate([beginning, pieces], axis=1)

    def candidates(self, token_ids: Int[np.ndarray, "candidate"], threads: int = 1) -> dict[str, Candidates]:
        """The tokens that the twin is ranked among, each as a whole word."""
        vectors = self.vectors(token_ids[:, None], threads=threads)
        return {place: Candidates.of(vectors.pop(place)) for place in self.places}

    def words_changed(
        self, words: Chains, null: Int[np.ndarray, "word piece"], partners: Int[np.ndarray, "word partner"] | None
    ) -> list[Condition]:
        """The unchanged words, then the controls; no additive one without partners."""
        pieces = words.pieces
        additive = [] if partners is None else [Condition("additive", pieces, partners=partners)]
        return [
            Condition("whole", pieces),
            Condition("null", null),
            Condition("last_piece", pieces[:, -1:]),
            Condition("first_piece", pieces[:, :1]),
            *additive,
        ]

    def layer_changed(
        self, words: Chains, heads: Sequence[int], null: Int[np.ndarray, "word piece"]
    ) -> list[Condition]:
        """Each head's attention cut and each term left out, for words and their null; each term alone."""
        pieces, terms = words.pieces, [str(term) for term in self.layer.term_meanings]
        before = slice(len(self.beginning), -1)
        cuts = {f"cut_{head_name(head)}": _cut(head, before) for head in heads}
        without = {f"without_{term}": _by([other for other in terms if other != term]) for term in terms}
        return [
            *(Condition(name, pieces, look, null=null) for name, look in (cuts | without).items()),
            *(Condition(f"only_{term}", pieces, _by([term])) for term in terms),
        ]


def _cut(head: int, places: slice) -> Look:
    return lambda seen: seen.attention_cut(head, places)


def _by(terms: Sequence[str]) -> Look:
    """Scores are added in this order, which determines their last bits."""
    return lambda seen: seen.attention(terms)

"""The score terms of documents, as thin factors: each query factor makes a term with each key factor.

Documents are computed in blocks. Each block projects the embeddings of its distinct tokens once (about 20 MB for 32
documents of 1,024 tokens in GPT-2 small). Blocks depend on the documents only, and results are added in block order,
so the numbers don't depend on the number of workers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from detoklens.errors import CorpusError
from detoklens.kernels.contributions import multiply_factors
from detoklens.kernels.product import QUERIES, key_panels
from detoklens.scores.factors import (
    Common,
    Factor,
    Factors,
    Mean,
    key_head_of,
    position_factors,
    rotated_factors,
    side_factors,
)
from detoklens.scores.layer import Layer
from detoklens.scores.terms import terms_present

TokenIds = Int[np.ndarray, "query"]
Positions = Int[np.ndarray, "row"]
KeyPanels = Float[np.ndarray, "factor panel d_head key"]


class DocumentFactors(NamedTuple):
    """The factors of one document in some heads, divided by σ.

    `constant` is the common part of all queries, if it makes terms of the key only; `slopes` are ALiBi's, divided by
    the attention scale.
    """

    query: Float[np.ndarray, "factor head query d_head"]
    key: Float[np.ndarray, "factor head query d_head"]
    constant: Float[np.ndarray, "head d_head"] | None = None
    slopes: Float[np.ndarray, "head"] | None = None

    @property
    def n_tokens(self) -> int:
        return self.query.shape[2]

    def keys_of(self, head: int) -> KeyPanels:
        """One head's key factors, packed for products."""
        return np.stack([key_panels(keys) for keys in self.key[:, head]])

    def pair_scores(
        self, head: int, queries: Positions, keys: KeyPanels, unit: np.floating, n_keys: int
    ) -> Float[np.ndarray, "pair row key"]:
        """The terms of some queries and the first keys in one head, times `unit`, in the order of `Rules.terms`.

        Rows and keys are padded to whole panels.
        """
        width, pairs = keys.shape[3], len(self.query) * len(keys)
        shape = (-(-len(queries) // QUERIES) * QUERIES, -(-n_keys // width) * width)
        scores = np.empty((pairs + (self.slopes is not None), *shape), keys.dtype)
        multiply_factors(self.query[:, head], queries, unit, keys, scores)
        if self.slopes is not None:
            scores[-1, : len(queries)] = self._distance_scores(head, queries, shape[1]) * unit
        return scores

    def _distance_scores(self, head: int, queries: Positions, n_keys: int) -> Float[np.ndarray, "row key"]:
        """ALiBi's bias for each query and key."""
        assert self.slopes is not None
        return -self.slopes[head] * (queries[:, None] - np.arange(n_keys)).astype(self.query.dtype)

    def key_scores(self, head: int, keys: KeyPanels, unit: np.floating) -> Float[np.ndarray, "other key"]:
        """The terms of the key only, times `unit`; keys are padded to whole panels."""
        if self.constant is None:
            return np.empty((0, keys.shape[1] * keys.shape[3]), keys.dtype)
        return (self.constant[head] * unit @ keys).reshape(len(keys), -1)

    def largest_score(self) -> float:
        """No term is larger, since |q · k| ≤ |q| |k|; NaN or infinite if a factor overflows."""
        query, key = (np.sqrt(np.einsum("fhqd,fhqd->fhq", side, side).max()) for side in (self.query, self.key))
        constant = 0.0 if self.constant is None else np.linalg.norm(self.constant, axis=1).max()
        distance = 0.0 if self.slopes is None else np.abs(self.slopes).max() * self.n_tokens
        return float(np.maximum(np.maximum(query, constant) * key, distance))

    def whole_scores(self, queries: Positions) -> Float[np.ndarray, "row head key"]:
        """The sum of all terms for some queries and every key."""
        query, key = self.query[:, :, queries].sum(axis=0), self.key.sum(axis=0)
        if self.constant is not None:
            query = query + self.constant[:, None]
        scores = query @ key.transpose(0, 2, 1)
        if self.slopes is not None:
            heads = range(len(scores))
            scores += np.stack([self._distance_scores(head, queries, self.n_tokens) for head in heads])
        return scores.transpose(1, 0, 2)


class Rules(NamedTuple):
    """Terms, attention scale, visible keys and softcap."""

    terms: Mapping[str, int]
    """The index of each term: terms of query and key first, by key factor, then terms of the key only."""
    attention_scale: float
    is_causal: bool
    window: int | None
    softcap: float | None

    @classmethod
    def of(cls, layer: Layer, common: Common) -> Rules:
        """The rules of a layer, with the terms of `layer.terms`."""
        terms = terms_present(layer.positions, common)
        stacked = sorted(terms, key=lambda term: (term.query is Factor.CONSTANT, term.key, term.query))
        places = {str(term.name): stacked.index(term) for term in terms}
        return cls(places, layer.attention_scale, layer.is_causal, layer.weights.window, layer.weights.softcap)

    def seen(self, queries: Positions, n_keys: int) -> tuple[Positions, Positions]:
        """The first visible key of each query, and the one after the last, in a document of `n_keys` tokens."""
        reach = n_keys if self.window is None else self.window
        ends = queries + 1 if self.is_causal else np.minimum(n_keys, queries + reach)
        return np.maximum(0, queries - reach + 1), ends


class DocumentTerms:
    """The terms of documents in some heads of a layer; `mean` as in `layer.terms`."""

    def __init__(self, layer: Layer, heads: list[int], documents: Sequence[TokenIds], mean: Mean = None) -> None:
        weights, (query, key), common = layer.weights, layer.sides, layer.common_part(mean)
        shared = sorted({key_head_of(head, weights) for head in heads})
        self.n_heads, self.rules, self._layer = len(heads), Rules.of(layer, common), layer
        self._key_heads = [shared.index(key_head_of(head, weights)) for head in heads]
        self._query, self._query_constant = query.of_heads(heads), common.query[heads]
        self._key, self._key_constant = key.of_heads(shared), common.key[shared]
        self._slopes = None if weights.alibi_slopes is None else weights.alibi_slopes[heads] / layer.attention_scale
        terms = terms_present(layer.positions, common)
        self._stacked = sorted({term.key for term in terms} - {Factor.DISTANCE})
        self._has_constant = any(term.query is Factor.CONSTANT for term in terms)
        self._positions = weights.position_embeddings[: max(map(len, documents))]

    @cached_property
    def _by_position(self) -> list[Factors]:
        """The factors of learned positions, shared by all blocks."""
        sides = (self._query.weight, self._key.weight[self._key_heads]) if len(self._positions) else ()
        return [position_factors(self._positions, weight) for weight in sides] or [{}, {}]

    def factors(self, documents: Sequence[TokenIds]) -> Iterator[DocumentFactors]:
        """The factors of each document; tokens that several documents share are projected once."""
        layer, weights = self._layer, self._layer.weights
        tokens, places_of = distinct_tokens(documents)
        table = weights.token_embeddings[tokens]
        if layer.positions != "learned":
            table = table / layer.scales.bare_tokens()[tokens, None]
        query = side_factors(weights, self._query, self._query_constant, table)
        key = side_factors(weights, self._key, self._key_constant, table)
        sides = query, {factor: vectors[self._key_heads] for factor, vectors in key.items()}

        def stack(side: Factors, by_position: Factors, ids: TokenIds, places: TokenIds) -> np.ndarray:
            found = {factor: vectors for factor, vectors in (side | by_position).items() if factor in self._stacked}
            found |= {factor: vectors[:, : len(ids)] for factor, vectors in by_position.items()}
            found = rotated_factors(weights, found | {Factor.TOKEN: side[Factor.TOKEN][:, places]}, np.arange(len(ids)))
            return np.stack([found[factor] for factor in self._stacked])

        for ids, places in zip(documents, places_of, strict=True):
            scales = self._scales(ids)[:, None] if layer.positions == "learned" else 1
            query_factors, key_factors = (
                stack(side, by_position, ids, places) / scales
                for side, by_position in zip(sides, self._by_position, strict=True)
            )
            constant = self._query_constant if self._has_constant else None
            yield DocumentFactors(query_factors, key_factors, constant, self._slopes)

    def scores(
        self, documents: Sequence[TokenIds], positions: Sequence[int]
    ) -> Iterator[Float[np.ndarray, "query head key"]]:
        """The scaled scores of some queries of each document against all its keys.

        With learned positions, few queries are multiplied by both projections, so that no key has to be: with GPT-2
        small, three queries and 1,024 keys this takes 60 million multiplications instead of 1.2 billion.
        """
        if self._layer.positions != "learned":
            for factors in self.factors(documents):
                reached = np.array([position for position in positions if position < factors.n_tokens], np.int64)
                yield factors.whole_scores(reached) * factors.query.dtype.type(self.rules.attention_scale)
            return
        key_weight = self._key.weight[self._key_heads]
        for ids in documents:
            both = self._layer.weights.token_embeddings[ids] + self._positions[: len(ids)]
            inputs = both / self._scales(ids)[:, None]
            rows = inputs[[position for position in positions if position < len(ids)]]
            queries = np.einsum("id,hdk->ihk", rows, self._query.weight, optimize=True) + self._query_constant
            through_keys = np.einsum("ihk,hdk->ihd", queries, key_weight, optimize=True)
            yield (through_keys @ inputs.T) * inputs.dtype.type(self.rules.attention_scale)

    def _scales(self, ids: TokenIds) -> Float[np.ndarray, "query"]:
        return self._layer.scales.at(np.arange(len(ids)), ids)


def distinct_tokens(documents: Sequence[TokenIds]) -> tuple[TokenIds, list[TokenIds]]:
    """The distinct tokens of some documents, and each document as indices into them."""
    tokens, places = np.unique(np.concatenate(documents), return_inverse=True)
    ends = np.cumsum([len(ids) for ids in documents])
    return tokens, np.split(places, ends[:-1])


def checked_documents(
    layer: Layer, documents: Sequence[Sequence[int] | TokenIds], query_positions: Sequence[int]
) -> list[TokenIds]:
    """The documents that reach at least one query position, as arrays; an error if none does."""
    layer.check(positions=query_positions)
    asked, least = [np.asarray(document, np.int64) for document in documents], min(query_positions)
    long_enough = [ids for ids in asked if len(ids) > least]
    if not long_enough:
        longest = max((len(ids) for ids in asked), default=0)
        raise CorpusError(
            f"no document reaches query position {least}: the longest of {len(asked)} has {longest} tokens; "
            "choose smaller positions or longer documents"
        )
    for ids in long_enough:
        layer.check(positions=[len(ids) - 1])
        layer.check(tokens=[int(ids.min()), int(ids.max())])
        if layer.weights.padding_token_id in ids:
            layer.check_text(ids)  # raises: padding tokens have no position
    return long_enough


MOST_DOCUMENTS, FEWEST_BLOCKS = 32, 16


def block_size(n_documents: int) -> int:
    """The documents per block: few enough to occupy all workers, many enough to share tokens."""
    return min(MOST_DOCUMENTS, -(-n_documents // FEWEST_BLOCKS))


def in_blocks(documents: Sequence[TokenIds]) -> list[Sequence[TokenIds]]:
    """Split documents into blocks."""
    size = block_size(len(documents))
    return [documents[begin : begin + size] for begin in range(0, len(documents), size)]


def digest(documents: Sequence[TokenIds]) -> str:
    """sha256 of the documents' token ids, in order."""
    hashed = hashlib.sha256()
    for ids in documents:
        hashed.update(len(ids).to_bytes(8, "little"))
        hashed.update(np.ascontiguousarray(ids, "<i8").data.cast("B"))
    return hashed.hexdigest()

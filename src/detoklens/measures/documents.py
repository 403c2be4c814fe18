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
from detoklens.kernels.contributions import pack_rows
from detoklens.kernels.product import QUERIES, keys_of_panel, multiply
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
Panels = Float[np.ndarray, "factor panel d_head row"]


class Vectors(NamedTuple):
    """One side's factors of a document: a table for each factor, with a row per token, and the document's rows."""

    tables: Sequence[Float[np.ndarray, "side_head row d_head"]]
    rows: Sequence[Int[np.ndarray, "query"]]
    longest: float
    """The largest length of a row of a table."""

    def of_head(self, head: int, tokens: Positions | slice) -> Iterator[Float[np.ndarray, "query d_head"]]:
        """The rows of some tokens, by factor."""
        for table, rows in zip(self.tables, self.rows, strict=True):
            yield table[head, rows[tokens]]

    def panels(
        self, head: int, tokens: Positions, divisors: Float[np.ndarray, "query"], unit: np.floating, width: int
    ) -> Panels:
        """The rows of some tokens, over their divisors and times `unit`, packed for products and padded with zeros."""
        n_panels, dimensions = -(-len(tokens) // width), self.tables[0].shape[2]
        panels = np.zeros((len(self.tables), n_panels, dimensions, width), self.tables[0].dtype)
        for table, rows, of_factor in zip(self.tables, self.rows, panels, strict=True):
            pack_rows(table[head], rows[tokens], divisors[tokens], unit, of_factor)
        return panels


class HeadFactors(NamedTuple):
    """The factors of some queries and some keys of a document in one head, packed for products."""

    positions: Positions
    queries: Panels
    keys: Panels
    key_scores: Float[np.ndarray, "other key"]
    """The terms of the key only; keys are padded to whole panels."""
    slope: float | None

    @property
    def n_terms(self) -> int:
        return len(self.queries) * len(self.keys) + len(self.key_scores) + (self.slope is not None)

    def terms(self) -> Iterator[Float[np.ndarray, "row key"]]:
        """The terms, in the order of `Rules.terms`; those of the key only have one row."""
        n_queries, n_keys = len(self.positions), self.key_scores.shape[1]
        for keys in self.keys:
            for queries in self.queries:
                yield multiply(queries, keys)[:n_queries]
        if self.slope is not None:
            yield (self.slope * (np.arange(n_keys) - self.positions[:, None])).astype(self.keys.dtype)
        yield from self.key_scores[:, None]


class DocumentFactors(NamedTuple):
    """The factors of one document in some heads; σ still divides their rows.

    `key_heads` are the heads that the heads share keys of. `constant` is the common part of all queries, if it makes
    terms of the key only; `slopes` are ALiBi's, divided by the attention scale.
    """

    queries: Vectors
    keys: Vectors
    key_heads: Sequence[int]
    scales: Float[np.ndarray, "query"]
    constant: Float[np.ndarray, "head d_head"] | None = None
    slopes: Float[np.ndarray, "head"] | None = None

    @property
    def n_tokens(self) -> int:
        return len(self.scales)

    @property
    def n_heads(self) -> int:
        return len(self.key_heads)

    @property
    def dtype(self) -> np.dtype:
        return self.scales.dtype

    def of_head(self, head: int, queries: Positions, n_keys: int, unit: np.floating) -> HeadFactors:
        """One head's factors of some queries, times `unit`, and of the first keys."""
        one, width = self.dtype.type(1), keys_of_panel(self.dtype)
        keys = self.keys.panels(self.key_heads[head], np.arange(n_keys), self.scales, one, width)
        key_scores = np.empty((0, keys.shape[1] * keys.shape[3]), self.dtype)
        if self.constant is not None:
            key_scores = (self.constant[head] * unit @ keys).reshape(len(keys), -1)
        slope = None if self.slopes is None else float(self.slopes[head]) * float(unit)
        panels = self.queries.panels(head, queries, self.scales, unit, QUERIES)
        return HeadFactors(queries, panels, keys, key_scores, slope)

    def largest_score(self) -> float:
        """No term is larger, since |q · k| ≤ |q| |k|; NaN or infinite if a factor overflows."""
        with np.errstate(over="ignore", invalid="ignore"):
            query, key = self.queries.longest / self.scales.min(), self.keys.longest / self.scales.min()
            constant = 0.0 if self.constant is None else np.linalg.norm(self.constant, axis=1).max()
            distance = 0.0 if self.slopes is None else np.abs(self.slopes).max() * self.n_tokens
            return float(np.maximum(np.maximum(query, constant) * key, distance))

    def whole_scores(self, queries: Positions) -> Float[np.ndarray, "row head key"]:
        """The sum of all terms for some queries and every key."""
        found = np.empty((len(queries), self.n_heads, self.n_tokens), self.dtype)
        for head, key_head in enumerate(self.key_heads):
            query = sum(self.queries.of_head(head, queries)) / self.scales[queries, None]
            key = sum(self.keys.of_head(key_head, slice(None))) / self.scales[:, None]
            if self.constant is not None:
                query = query + self.constant[head]
            found[:, head] = query @ key.T
            if self.slopes is not None:
                distances = queries[:, None] - np.arange(self.n_tokens)
                found[:, head] -= self.slopes[head] * distances.astype(self.dtype)
        return found


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
        sides = (self._query.weight, self._key.weight) if len(self._positions) else ()
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
        sides = [side | by_position for side, by_position in zip((query, key), self._by_position, strict=True)]
        longest = [_longest([side[factor] for factor in self._stacked]) for side in sides]
        constant = self._query_constant if self._has_constant else None
        for ids, places in zip(documents, places_of, strict=True):
            positions, rows_of = np.arange(len(ids)), {Factor.TOKEN: places}
            scales = self._scales(ids) if layer.positions == "learned" else np.ones(len(ids), table.dtype)
            own = sides
            if weights.rotary_frequencies is not None:
                rows_of = {}
                in_place = [side | {Factor.TOKEN: side[Factor.TOKEN][:, places]} for side in sides]
                own = [rotated_factors(weights, side, positions) for side in in_place]
            rows = [rows_of.get(factor, positions) for factor in self._stacked]
            query_vectors, key_vectors = (
                Vectors([side[factor] for factor in self._stacked], rows, length)
                for side, length in zip(own, longest, strict=True)
            )
            yield DocumentFactors(query_vectors, key_vectors, self._key_heads, scales, constant, self._slopes)

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
                yield factors.whole_scores(reached) * factors.dtype.type(self.rules.attention_scale)
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


def _longest(factors: Sequence[Float[np.ndarray, "head row d_head"]]) -> float:
    """The largest length of a row of some factors; infinite if it overflows."""
    with np.errstate(over="ignore"):
        return float(np.sqrt(max(np.einsum("hrd,hrd->hr", each, each).max() for each in factors)))


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

"""Blocks of documents, each with the part of the first layer that its scores depend on.

A block projects the embeddings of its tokens once each (about 20 MB for 32 documents of 1,024 tokens in GPT-2 small).
Blocks depend on the documents only, and results are added in block order, so the numbers don't depend on the number of
workers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from detoklens.errors import CorpusError
from detoklens.scores.factors import Common, Mean, Side, key_side, project, query_side, rotated
from detoklens.scores.layer import Layer
from detoklens.scores.softmax import seen_keys
from detoklens.scores.terms import terms_present
from detoklens.weights.first_layer import FirstLayer

TokenIds = Int[np.ndarray, "query"]
Keys = Float[np.ndarray, "factor d_head key"]


class DocumentFactors(NamedTuple):
    """The thin factors of one document, divided by σ: each query factor makes a term with each key factor.

    `asking` is the common part of all queries, if it makes a term of the key only; `slopes` are ALiBi's.
    """

    query: Float[np.ndarray, "factor head query d_head"]
    key: Float[np.ndarray, "factor head query d_head"]
    asking: Float[np.ndarray, "head d_head"] | None = None
    slopes: Float[np.ndarray, "head"] | None = None

    @property
    def n_tokens(self) -> int:
        return self.query.shape[2]

    def keys_of(self, head: int) -> Keys:
        """One head's key factors, keys last."""
        return np.ascontiguousarray(self.key[:, head].transpose(0, 2, 1))

    def pair_scores(
        self, head: int, queries: Int[np.ndarray, "row"], keys: Keys, unit: np.floating
    ) -> Float[np.ndarray, "pair row key"]:
        """The terms of query and key in one head, times `unit`."""
        found = (self.query[:, head, queries] * unit)[:, None] @ keys[None]
        scores = found.reshape(-1, *found.shape[2:])
        if self.slopes is None:
            return scores
        return np.concatenate([scores, (self.distance_scores(head, queries, keys.shape[2]) * unit)[None]])

    def distance_scores(self, head: int, queries: Int[np.ndarray, "row"], n_keys: int) -> Float[np.ndarray, "row key"]:
        """ALiBi's bias for each query and key."""
        assert self.slopes is not None
        return -self.slopes[head] * (queries[:, None] - np.arange(n_keys)).astype(self.query.dtype)

    def key_scores(self, head: int, keys: Keys, unit: np.floating) -> Float[np.ndarray, "other key"]:
        """The terms of the key only, times `unit`."""
        if self.asking is None:
            return np.empty((0, keys.shape[2]), keys.dtype)
        return self.asking[head] * unit @ keys

    def whole_scores(self, queries: Int[np.ndarray, "row"]) -> Float[np.ndarray, "row head key"]:
        """The sum of all terms for some queries and every key."""
        query, key = self.query[:, :, queries].sum(axis=0), self.key.sum(axis=0)
        if self.asking is not None:
            query = query + self.asking[:, None]
        scores = query @ key.transpose(0, 2, 1)
        if self.slopes is not None:
            heads = range(len(scores))
            scores += np.stack([self.distance_scores(head, queries, self.n_tokens) for head in heads])
        return scores.transpose(1, 0, 2)


class Rules(NamedTuple):
    """Terms, attention scale, visible keys and softcap."""

    terms: Mapping[str, int]
    """The index of each term: terms of query and key first, then terms of the key only."""
    attention_scale: float
    is_causal: bool
    window: int | None
    softcap: float | None

    @classmethod
    def of(cls, layer: Layer, common: Common) -> Rules:
        """The rules of a layer, with the terms of `layer.terms`."""
        weights, terms = layer.weights, terms_present(layer.positions, common)
        stacked = sorted(terms, key=lambda term: (term.query, term.key))
        places = {str(term.name): stacked.index(term) for term in terms}
        return cls(places, layer.attention_scale, layer.is_causal, weights.window, weights.softcap)

    def seen(self, query: int, n_keys: int) -> slice:
        """The visible keys of a query in a document of `n_keys` tokens."""
        return seen_keys(query, n_keys, self.is_causal, self.window)


def in_places(documents: Sequence[TokenIds]) -> tuple[TokenIds, list[TokenIds]]:
    """The distinct tokens of some documents, and each document as indices into them."""
    tokens, places = np.unique(np.concatenate(documents), return_inverse=True)
    ends = np.cumsum([len(ids) for ids in documents])
    return tokens, np.split(places, ends[:-1])


@dataclass(frozen=True)
class OffsetBlock:
    """Documents of a rotary or ALiBi model, as indices into the normed `table`, with both sides of the given heads."""

    places: Sequence[TokenIds]
    table: Float[np.ndarray, "token d_model"]
    query_side: Side
    key_side: Side
    own_keys: Sequence[int]
    common: Common
    rotation: FirstLayer
    """The layer without weights: only its rotary positions are used."""
    slopes: Float[np.ndarray, "head"] | None
    """ALiBi's slopes, divided by the attention scale."""
    rules: Rules

    @property
    def n_heads(self) -> int:
        return len(self.own_keys)

    def factors(self) -> Iterator[DocumentFactors]:
        """The factors of each document; tokens that several documents share are projected once."""
        query = self.query_side.less_constant(self.table, self.common.query)
        key = self.key_side.less_constant(self.table, self.common.key)[list(self.own_keys)]
        common_key = self.common.key[list(self.own_keys)]
        for places in self.places:
            tokens = query[:, places], key[:, places]
            if self.slopes is not None:
                asking = self.common.query if "e" in self.rules.terms else None
                yield DocumentFactors(tokens[0][None], tokens[1][None], asking, self.slopes)
            else:
                yield DocumentFactors(self._turned(tokens[0], self.common.query), self._turned(tokens[1], common_key))

    def _turned(
        self, tokens: Float[np.ndarray, "head query d_head"], common: Float[np.ndarray, "head d_head"]
    ) -> Float[np.ndarray, "factor head query d_head"]:
        """The tokens' vectors and, if it makes terms, the common vector, each rotated by its position."""
        places = np.arange(tokens.shape[1])
        found = [tokens]
        if "p" in self.rules.terms:
            found.append(np.broadcast_to(common[:, None], tokens.shape))
        return np.stack([rotated(self.rotation, np.ascontiguousarray(vectors), places) for vectors in found])

    def scores(self, positions: Sequence[int]) -> Iterator[Float[np.ndarray, "query head key"]]:
        """The scaled scores of some queries of each document against all its keys."""
        for factors in self.factors():
            reached = np.array([position for position in positions if position < factors.n_tokens], np.int64)
            yield factors.whole_scores(reached) * factors.query.dtype.type(self.rules.attention_scale)


def offset_block(layer: Layer, documents: Sequence[TokenIds], heads: list[int], mean: Mean) -> OffsetBlock:
    """Documents of a rotary or ALiBi model, with what their scores in these heads depend on."""
    tokens, places = in_places(documents)
    weights, common, slopes = layer.weights, layer.common_part(mean), layer.weights.alibi_slopes
    shared = sorted({head // weights.heads_per_key for head in heads})
    return OffsetBlock(
        places=places,
        table=weights.token_embeddings[tokens] / layer.scales.bare_tokens()[tokens, None],
        query_side=query_side(weights, layer.folded).of_heads(heads),
        key_side=key_side(weights, layer.folded).of_heads(shared),
        own_keys=[shared.index(head // weights.heads_per_key) for head in heads],
        common=Common(common.query[heads], common.key[shared]),
        rotation=_without_weights(weights),
        slopes=None if slopes is None else slopes[heads] / layer.attention_scale,
        rules=Rules.of(layer, common),
    )


def _without_weights(layer: FirstLayer) -> FirstLayer:
    """The same layer with no heads and no tokens."""
    return replace(
        layer,
        token_embeddings=layer.token_embeddings[:0],
        query_weight=layer.query_weight[:, :0],
        query_bias=layer.query_bias[:0],
        key_weight=layer.key_weight[:, :0],
        key_bias=layer.key_bias[:0],
        value_weight=layer.value_weight[:, :0],
        value_bias=layer.value_bias[:0],
        output_weight=layer.output_weight[:0],
        alibi_slopes=None,
    )


MOST_DOCUMENTS, FEWEST_BLOCKS = 32, 16


@dataclass(frozen=True)
class TextBlock:
    """Documents of a model with learned positions, as indices into `token_embeddings`, and σ of each token."""

    places: Sequence[TokenIds]
    scales: Sequence[Float[np.ndarray, "query"]]
    token_embeddings: Float[np.ndarray, "token d_model"]
    position_embeddings: Float[np.ndarray, "position d_model"]
    query_weight: Float[np.ndarray, "head d_model d_head"]
    query_bias: Float[np.ndarray, "head d_head"]
    key_weight: Float[np.ndarray, "head d_model d_head"]
    rules: Rules

    @property
    def n_heads(self) -> int:
        return len(self.query_bias)

    def inputs(self) -> Iterator[Float[np.ndarray, "query d_model"]]:
        """(e + p) / σ of each document."""
        for places, scales in zip(self.places, self.scales, strict=True):
            both = self.token_embeddings[places] + self.position_embeddings[: len(places)]
            yield both / scales[:, None]

    def factors(self) -> Iterator[DocumentFactors]:
        """The factors of each document; tokens that several documents share are projected once."""
        query_token, key_token = (project(self.token_embeddings, w) for w in (self.query_weight, self.key_weight))
        query_position, key_position = (
            project(self.position_embeddings, weight) for weight in (self.query_weight, self.key_weight)
        )
        for places, scales in zip(self.places, self.scales, strict=True):
            column, length = scales[:, None], len(places)
            yield DocumentFactors(
                np.stack([query_token[:, places] / column, query_position[:, :length] / column]),
                np.stack([key_token[:, places] / column, key_position[:, :length] / column]),
                self.query_bias,
            )

    def scores(self, positions: Sequence[int]) -> Iterator[Float[np.ndarray, "query head key"]]:
        """The scaled scores of some queries of each document against all its keys.

        Few queries are multiplied by both projections, so that no key has to be: with GPT-2 small, three queries and
        1,024 keys this takes 60 million multiplications instead of 1.2 billion.
        """
        for inputs in self.inputs():
            reached = [position for position in positions if position < len(inputs)]
            queries = np.einsum("id,hdk->ihk", inputs[reached], self.query_weight, optimize=True) + self.query_bias
            through_keys = np.einsum("ihk,hdk->ihd", queries, self.key_weight, optimize=True)
            yield (through_keys @ inputs.T) * inputs.dtype.type(self.rules.attention_scale)


def checked_documents(
    layer: Layer, documents: Sequence[Sequence[int] | TokenIds], query_positions: Sequence[int]
) -> list[TokenIds]:
    """The documents that reach at least one query position, as arrays; an error if none does."""
    layer.check_positions(query_positions)
    asked, least = [np.asarray(document, np.int64) for document in documents], min(query_positions)
    long_enough = [ids for ids in asked if len(ids) > least]
    if not long_enough:
        longest = max((len(ids) for ids in asked), default=0)
        raise CorpusError(
            f"no document reaches query position {least}: the longest of {len(asked)} has {longest} tokens; "
            "choose smaller positions or longer documents"
        )
    for ids in long_enough:
        layer.check_positions([len(ids) - 1])
        layer.check_tokens([int(ids.min()), int(ids.max())])
        if layer.weights.padding_token_id in ids:
            layer.check_text(ids)  # raises: padding tokens have no position
    return long_enough


def block_size(n_documents: int) -> int:
    """The documents per block: few enough to occupy all workers, many enough to share tokens."""
    return min(MOST_DOCUMENTS, -(-n_documents // FEWEST_BLOCKS))


def in_blocks(documents: Sequence[TokenIds]) -> list[Sequence[TokenIds]]:
    """Split documents into blocks."""
    size = block_size(len(documents))
    return [documents[begin : begin + size] for begin in range(0, len(documents), size)]


def text_block(
    layer: Layer, documents: Sequence[TokenIds], heads: list[int], mean: Mean = None
) -> TextBlock | OffsetBlock:
    """Documents with what their scores in these heads depend on; `mean` as in `layer.terms`."""
    if layer.positions != "learned":
        return offset_block(layer, documents, heads, mean)
    tokens, places = in_places(documents)
    return TextBlock(
        places=places,
        scales=[layer.scales.at(np.arange(len(ids)), ids) for ids in documents],
        token_embeddings=layer.weights.token_embeddings[tokens],
        position_embeddings=layer.weights.position_embeddings[: max(len(ids) for ids in documents)],
        query_weight=layer.folded.query_weight[heads],
        query_bias=layer.folded.query_bias[heads],
        key_weight=layer.folded.key_weight[heads],
        rules=Rules.of(layer, layer.common_part(None)),
    )


def digest(documents: Sequence[TokenIds]) -> str:
    """sha256 of the documents' token ids, in order."""
    hashed = hashlib.sha256()
    for ids in documents:
        hashed.update(len(ids).to_bytes(8, "little"))
        hashed.update(np.ascontiguousarray(ids, "<i8").data.cast("B"))
    return hashed.hexdigest()

"""Documents in blocks where positions are rotary or ALiBi: queries and keys are vectors of their tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from detoklens.measures.document_terms import DocumentFactors, Rules, TokenIds, in_places
from detoklens.scores.common_part import Common, Mean
from detoklens.scores.factors import Side, key_side, query_side
from detoklens.scores.layer import Layer
from detoklens.scores.rotation import rotated
from detoklens.weights.first_layer import FirstLayer

ROTARY_TERMS = {"ee": 0, "e": 2, "ep": 1, "p": 3}
ALIBI_TERMS = {"ee": 0, "e": 2, "p": 1}


@dataclass(frozen=True)
class OffsetBlock:
    """Some documents: the places of their tokens among the normed `table`, and both sides of the heads asked for."""

    places: Sequence[TokenIds]
    table: Float[np.ndarray, "token d_model"]
    query_side: Side
    key_side: Side
    own_keys: Sequence[int]
    common: Common
    rotation: FirstLayer
    """What rotary positions do, and nothing else of the layer."""
    slopes: Float[np.ndarray, "head"] | None
    """ALiBi's, over the attention scale."""
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
        """The tokens' vectors and, where it makes terms, the common one, each turned by its place."""
        places = np.arange(tokens.shape[1])
        found = [tokens]
        if "p" in self.rules.terms:
            found.append(np.broadcast_to(common[:, None], tokens.shape))
        return np.stack([rotated(self.rotation, np.ascontiguousarray(vectors), places) for vectors in found])

    def scores(self, positions: Sequence[int]) -> Iterator[Float[np.ndarray, "query head key"]]:
        """The whole scores of some queries of each document against all its keys, as the model scales them."""
        for factors in self.factors():
            reached = np.array([position for position in positions if position < factors.n_tokens], np.int64)
            yield factors.whole_scores(reached) * factors.query.dtype.type(self.rules.attention_scale)


def offset_block(layer: Layer, documents: Sequence[TokenIds], heads: list[int], mean: Mean) -> OffsetBlock:
    """Some documents with what their scores in these heads depend on."""
    tokens, places = in_places(documents)
    weights, common, slopes = layer.weights, layer.common_part(mean), layer.weights.alibi_slopes
    shared = sorted({head // weights.heads_per_key for head in heads})
    return OffsetBlock(
        places=places,
        table=weights.token_embeddings[tokens] / layer.scales.bare_tokens()[tokens, None],
        query_side=_of_heads(query_side(weights, layer.folded), heads),
        key_side=_of_heads(key_side(weights, layer.folded), shared),
        own_keys=[shared.index(head // weights.heads_per_key) for head in heads],
        common=Common(common.query[heads], common.key[shared]),
        rotation=_without_weights(weights),
        slopes=None if slopes is None else slopes[heads] / layer.attention_scale,
        rules=Rules.of(layer, _terms(layer, common)),
    )


def _terms(layer: Layer, common: Common) -> dict[str, int]:
    """Those of `layer.terms`: without anything in common there are fewer."""
    if layer.positions == "rotary":
        return {"ee": 0} if common.is_nothing else ROTARY_TERMS
    return ALIBI_TERMS if common.query.any() else {"ee": 0, "p": 1}


def _of_heads(side: Side, heads: list[int]) -> Side:
    return replace(side, weight=side.weight[heads], bias=side.bias[heads])


def _without_weights(layer: FirstLayer) -> FirstLayer:
    """The same layer of no heads and no tokens."""
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

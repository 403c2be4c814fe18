"""Documents in blocks, each with all of the first layer that its scores depend on.

A block projects the embeddings of its own tokens only, each once (for 32 documents of 1,024 tokens and GPT-2 small
about 20 MB). How documents fall into blocks depends on the documents alone, and results are added up in the order of
the blocks: the numbers are the same for any number of workers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from detoklens.errors import CorpusError
from detoklens.measures.document_terms import DocumentFactors, Rules, TokenIds, in_places
from detoklens.measures.offset_blocks import OffsetBlock, offset_block
from detoklens.scores.common_part import Mean
from detoklens.scores.factors import project
from detoklens.scores.layer import Layer

MOST_DOCUMENTS, FEWEST_BLOCKS = 32, 16


SIX_TERMS = {"ee": 0, "pp": 3, "pe": 2, "ep": 1, "e": 4, "p": 5}


@dataclass(frozen=True)
class TextBlock:
    """Some documents: the places of their tokens in `token_embeddings`, and σ of each."""

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
        """The whole scores of some queries of each document against all its keys, as the model scales them.

        With few queries the query goes through both projections and no key through any: for GPT-2 small, three queries
        and 1,024 keys, 60 million multiplications instead of 1.2 thousand million.
        """
        for inputs in self.inputs():
            reached = [position for position in positions if position < len(inputs)]
            queries = np.einsum("id,hdk->ihk", inputs[reached], self.query_weight, optimize=True) + self.query_bias
            through_keys = np.einsum("ihk,hdk->ihd", queries, self.key_weight, optimize=True)
            yield (through_keys @ inputs.T) * inputs.dtype.type(self.rules.attention_scale)


def checked_documents(
    layer: Layer, documents: Sequence[Sequence[int] | TokenIds], query_positions: Sequence[int]
) -> list[TokenIds]:
    """The documents that reach at least one query position, as arrays; an error where none does."""
    layer.check_positions(query_positions)
    asked, least = [np.asarray(document, np.int64) for document in documents], min(query_positions)
    long_enough = [ids for ids in asked if len(ids) > least]
    if not long_enough:
        longest = max((len(ids) for ids in asked), default=0)
        raise CorpusError(
            f"no document reaches query position {least}: the longest of {len(asked)} has {longest} tokens; "
            "ask for smaller positions, or give longer documents"
        )
    for ids in long_enough:
        layer.check_positions([len(ids) - 1])
        layer.check_tokens([int(ids.min()), int(ids.max())])
        if layer.weights.padding_token_id in ids:
            layer.check_text(ids)  # which says that padding takes no position
    return long_enough


def block_size(n_documents: int) -> int:
    """How many documents make a block: few enough for all workers to have one, many enough to share tokens."""
    return min(MOST_DOCUMENTS, -(-n_documents // FEWEST_BLOCKS))


def in_blocks(documents: Sequence[TokenIds]) -> list[Sequence[TokenIds]]:
    """The documents of each block."""
    size = block_size(len(documents))
    return [documents[begin : begin + size] for begin in range(0, len(documents), size)]


def text_block(
    layer: Layer, documents: Sequence[TokenIds], heads: list[int], mean: Mean = None
) -> TextBlock | OffsetBlock:
    """Some documents with what their scores in these heads depend on; `mean` as in `layer.terms`."""
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
        rules=Rules.of(layer, SIX_TERMS),
    )


def digest(documents: Sequence[TokenIds]) -> str:
    """sha256 of the documents' token ids in their order."""
    hashed = hashlib.sha256()
    for ids in documents:
        hashed.update(len(ids).to_bytes(8, "little"))
        hashed.update(np.ascontiguousarray(ids, "<i8").data.cast("B"))
    return hashed.hexdigest()

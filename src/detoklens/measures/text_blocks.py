"""Documents in blocks, each with all of the first layer that its scores depend on.

A block is one task for an engine: it holds the embeddings of its own tokens only (for 32 documents of 1,024 tokens and
GPT-2 small about 20 MB), so that no worker loads a model. How documents fall into blocks depends on the documents
alone, and results are added up in the order of the blocks: the numbers are the same for any number of workers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from detoklens.errors import CorpusError
from detoklens.scores.factors import project
from detoklens.scores.layer import Layer

TokenIds = Int[np.ndarray, "query"]
MOST_DOCUMENTS, FEWEST_BLOCKS = 32, 16


class DocumentFactors(NamedTuple):
    """The thin factors of one document, σ divided in."""

    query_token: Float[np.ndarray, "head query d_head"]
    query_position: Float[np.ndarray, "head query d_head"]
    key_token: Float[np.ndarray, "head query d_head"]
    key_position: Float[np.ndarray, "head query d_head"]


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
    attention_scale: float

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
                query_token[:, places] / column,
                query_position[:, :length] / column,
                key_token[:, places] / column,
                key_position[:, :length] / column,
            )


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
    return long_enough


def block_size(n_documents: int) -> int:
    """How many documents make a block: few enough for all workers to have one, many enough to share tokens."""
    return min(MOST_DOCUMENTS, -(-n_documents // FEWEST_BLOCKS))


def in_blocks(documents: Sequence[TokenIds]) -> list[Sequence[TokenIds]]:
    """The documents of each block."""
    size = block_size(len(documents))
    return [documents[begin : begin + size] for begin in range(0, len(documents), size)]


def text_block(layer: Layer, documents: Sequence[TokenIds], heads: list[int]) -> TextBlock:
    """Some documents with what their scores in these heads depend on."""
    tokens, places = np.unique(np.concatenate(documents), return_inverse=True)
    ends = np.cumsum([len(ids) for ids in documents])
    return TextBlock(
        places=np.split(places, ends[:-1]),
        scales=[layer.scales.at(np.arange(len(ids)), ids) for ids in documents],
        token_embeddings=layer.weights.token_embeddings[tokens],
        position_embeddings=layer.weights.position_embeddings[: max(len(ids) for ids in documents)],
        query_weight=layer.folded.query_weight[heads],
        query_bias=layer.folded.query_bias[heads],
        key_weight=layer.folded.key_weight[heads],
        attention_scale=layer.attention_scale,
    )


def digest(documents: Sequence[TokenIds]) -> str:
    """sha256 of the documents' token ids in their order."""
    hashed = hashlib.sha256()
    for ids in documents:
        hashed.update(len(ids).to_bytes(8, "little"))
        hashed.update(np.ascontiguousarray(ids, "<i8").data.cast("B"))
    return hashed.hexdigest()

"""The terms of one document as products of thin factors, and the rules by which they become attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from detoklens.scores.layer import Layer
from detoklens.scores.softmax import seen_keys

TokenIds = Int[np.ndarray, "query"]
Keys = Float[np.ndarray, "factor d_head key"]


class DocumentFactors(NamedTuple):
    """The thin factors of one document, σ divided in: each query factor makes a term with each key factor.

    `asking` is what all queries have in common, where that makes a term of the key alone; `slopes` is ALiBi's, by which
    a score falls with the distance.
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
        """The terms of query and key in one head, in a unit."""
        found = (self.query[:, head, queries] * unit)[:, None] @ keys[None]
        scores = found.reshape(-1, *found.shape[2:])
        if self.slopes is None:
            return scores
        return np.concatenate([scores, (self.distance_scores(head, queries, keys.shape[2]) * unit)[None]])

    def distance_scores(self, head: int, queries: Int[np.ndarray, "row"], n_keys: int) -> Float[np.ndarray, "row key"]:
        """By how much ALiBi lowers each score."""
        assert self.slopes is not None
        return -self.slopes[head] * (queries[:, None] - np.arange(n_keys)).astype(self.query.dtype)

    def key_scores(self, head: int, keys: Keys, unit: np.floating) -> Float[np.ndarray, "other key"]:
        """The terms of the key alone, in a unit."""
        if self.asking is None:
            return np.empty((0, keys.shape[2]), keys.dtype)
        return self.asking[head] * unit @ keys

    def whole_scores(self, queries: Int[np.ndarray, "row"]) -> Float[np.ndarray, "row head key"]:
        """The score of some queries with every key: all terms at once."""
        query, key = self.query[:, :, queries].sum(axis=0), self.key.sum(axis=0)
        if self.asking is not None:
            query = query + self.asking[:, None]
        scores = query @ key.transpose(0, 2, 1)
        if self.slopes is not None:
            heads = range(len(scores))
            scores += np.stack([self.distance_scores(head, queries, self.n_tokens) for head in heads])
        return scores.transpose(1, 0, 2)


class Rules(NamedTuple):
    """Which terms there are, what they are multiplied by, which keys a query sees, where scores are bent."""

    terms: Mapping[str, int]
    """The place of each term among those of query and key, and after these those of the key alone."""
    attention_scale: float
    is_causal: bool
    window: int | None
    softcap: float | None

    @classmethod
    def of(cls, layer: Layer, terms: Mapping[str, int]) -> Rules:
        weights = layer.weights
        return cls(terms, layer.attention_scale, layer.is_causal, weights.window, weights.softcap)

    def seen(self, query: int, n_keys: int) -> slice:
        """The keys that a query sees of a document of so many."""
        return seen_keys(query, n_keys, self.is_causal, self.window)


def in_places(documents: Sequence[TokenIds]) -> tuple[TokenIds, list[TokenIds]]:
    """The tokens that occur in some documents, each once, and where each document's stand among them."""
    tokens, places = np.unique(np.concatenate(documents), return_inverse=True)
    ends = np.cumsum([len(ids) for ids in documents])
    return tokens, np.split(places, ends[:-1])

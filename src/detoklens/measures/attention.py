"""Attention on text, measured and predicted from positions alone.

Layer 0's attention needs only the first layer's weights, and only the rows of the chosen query positions:

    s[h, i, j] = ((x_i W̃_Q + b̃_Q) W̃_Kᵀ) · x_jᵀ       x = (e + p) / σ

A bidirectional model also attends to later keys, so its documents are truncated to one length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from detoklens.errors import RangeError
from detoklens.measures.documents import DocumentTerms, TokenIds, checked_documents, in_blocks
from detoklens.measures.positions import predicted_attention
from detoklens.parallel import Arrays, Runner
from detoklens.scores.factors import Mean
from detoklens.scores.layer import Layer
from detoklens.scores.softmax import seen_keys, softcapped, softmax

RECENT = 15
"""The number of keys before the query that count as recent."""


@dataclass(frozen=True)
class Measured:
    """Attention of one query position over documents, its prediction, and the distance between them."""

    query_position: int
    documents: int
    mean: Float[np.ndarray, "head key"]
    low: Float[np.ndarray, "head key"]
    high: Float[np.ndarray, "head key"]
    predicted: Float[np.ndarray, "head key"]
    document_distance: Float[np.ndarray, "head"]

    @property
    def distance(self) -> Float[np.ndarray, "head"]:
        """Total variation between mean and predicted attention: 0 equal, 1 disjoint."""
        return np.abs(self.mean - self.predicted).sum(axis=1) / 2


def text_attention(
    layer: Layer,
    documents: Sequence[Sequence[int] | TokenIds],
    query_positions: Sequence[int],
    heads: list[int] | None = None,
    band: float = 0.95,
    runner: Runner | None = None,
    mean: Mean = None,
) -> list[Measured]:
    """Measured and predicted attention of each query position that some document reaches, in order.

    With rotary positions the prediction depends on `mean`.
    """
    heads = list(range(layer.n_heads)) if heads is None else heads
    layer.check(heads=heads)
    texts = checked_documents(layer, documents, query_positions)
    length = max(map(len, texts))
    if not layer.is_causal and min(map(len, texts)) < length:
        raise RangeError("a bidirectional model needs documents of one length; truncate them")
    reached = [position for position in sorted(set(query_positions)) if position < length]
    prediction = predicted_attention(layer, reached, n_keys=None if layer.is_causal else length, mean=mean)
    predicted = {query: rows[heads].astype(np.float64) for query, rows in zip(reached, prediction, strict=True)}
    number = {query: sum(len(ids) > query for ids in texts) for query in reached}
    bands = {query: Band(predicted[query].shape, number[query], band) for query in reached}
    distance = {query: np.zeros(len(heads)) for query in reached}
    blocks, terms = in_blocks(texts), DocumentTerms(layer, heads, texts, mean)
    for found in (runner or Runner()).run(lambda block: attention_rows(terms, blocks[block], reached), len(blocks)):
        for query in reached:
            rows = found[str(query)]
            bands[query].add(rows)
            distance[query] += np.abs(rows - predicted[query]).sum(axis=2).sum(axis=0) / 2
    return [
        Measured(
            query,
            number[query],
            of_query.mean(),
            of_query.low(),
            of_query.high(),
            predicted[query],
            distance[query] / number[query],
        )
        for query, of_query in bands.items()
    ]


def attention_rows(terms: DocumentTerms, documents: Sequence[TokenIds], query_positions: Sequence[int]) -> Arrays:
    """For each query position, the rows [document, head, key] of the documents that have it, in float32.

    Keys outside a window get no attention.
    """
    rows: dict[int, list[Float[np.ndarray, "head key"]]] = {position: [] for position in query_positions}
    rules = terms.rules
    for scores in terms.scores(documents, query_positions):
        for position, scored in zip(rows, scores, strict=False):
            n_keys = scored.shape[1]
            seen = seen_keys(position, n_keys, rules.is_causal, rules.window)
            end = position + 1 if rules.is_causal else n_keys
            attention = softmax(softcapped(scored[:, seen], rules.softcap))
            rows[position].append(np.pad(attention, ((0, 0), (seen.start, end - seen.stop))))
    return {
        str(position): np.asarray(found, np.float32).reshape(
            len(found), terms.n_heads, found[0].shape[1] if found else position + 1
        )
        for position, found in rows.items()
    }


def region_masses(
    attention: Float[np.ndarray, "head key"], query: int | None = None
) -> dict[str, Float[np.ndarray, "head"]]:
    """Attention on the first key, far keys, the 15 recent keys, the query itself and the 15 next keys.

    The regions are disjoint and add up to 1; self takes precedence over first, and first over recent. By default the
    query is the last key.
    """
    query = attention.shape[1] - 1 if query is None else query
    begin, end = max(1, query - RECENT), query + 1 + RECENT
    return {
        "first": attention[:, 0] if query else np.zeros(len(attention)),
        "far": attention[:, 1:begin].sum(axis=1) + attention[:, end:].sum(axis=1),
        "recent": attention[:, begin:query].sum(axis=1),
        "self": attention[:, query],
        "next": attention[:, query + 1 : end].sum(axis=1),
    }


class Band:
    """Mean and linearly interpolated quantiles of each cell over `documents` documents.

    A 95 % band needs only the largest and smallest 2.5 % of each cell's numbers. The number of documents is known in
    advance, so only those are kept.
    """

    def __init__(self, cells: tuple[int, ...], documents: int, share: float) -> None:
        self._place = (1 - share) / 2 * (documents - 1)
        self._kept = min(documents, int(self._place) + 2)
        self._documents = documents
        self._sum = np.zeros(cells)
        self._lowest = np.empty((0, *cells), np.float32)
        self._highest = np.empty((0, *cells), np.float32)

    def add(self, values: Float[np.ndarray, "document *cell"]) -> None:
        """Add documents."""
        self._sum += values.sum(axis=0, dtype=np.float64)
        self._lowest = _smallest(np.concatenate([self._lowest, values]), self._kept)
        self._highest = -_smallest(-np.concatenate([self._highest, values]), self._kept)

    def mean(self) -> Float[np.ndarray, "*cell"]:
        return self._sum / self._documents

    def low(self) -> Float[np.ndarray, "*cell"]:
        return _between(np.sort(self._lowest, axis=0), self._place)

    def high(self) -> Float[np.ndarray, "*cell"]:
        return -_between(np.sort(-self._highest, axis=0), self._place)


def _smallest(values: Float[np.ndarray, "document *cell"], kept: int) -> Float[np.ndarray, "kept *cell"]:
    return values if len(values) <= kept else np.partition(values, kept - 1, axis=0)[:kept]


def _between(ordered: Float[np.ndarray, "kept *cell"], place: float) -> Float[np.ndarray, "*cell"]:
    """The value at a fractional index, linearly interpolated."""
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    first = ordered[below].astype(np.float64)
    return first + (ordered[above] - first) * (place - below)

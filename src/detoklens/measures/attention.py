"""Does attention on real text agree with what position alone predicts?

Layer 0's attention needs the first layer's weights alone, and at given query positions only their rows:

    s[h, i, j] = ((x_i W̃_Q + b̃_Q) W̃_Kᵀ) · x_jᵀ       x = (e + p) / σ

With few queries the query goes through both projections and no key through any: for GPT-2 small, three queries and
1,024 keys, 60 million multiplications instead of 1.2 thousand million.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from detoklens.measures.block_runs import Arrays, Runner, one_thread
from detoklens.measures.positions import predicted_attention
from detoklens.measures.text_blocks import TextBlock, TokenIds, checked_documents, in_blocks, text_block
from detoklens.scores.layer import Layer
from detoklens.scores.softmax import softmax

RECENT = 15
"""How many keys before the query count as recent."""


@dataclass(frozen=True)
class AttentionTask:
    """A block of documents and the query positions to look from."""

    block: TextBlock
    query_positions: Sequence[int]


@dataclass(frozen=True)
class Measured:
    """The attention of one query position over documents, beside the prediction and the distance to it."""

    query_position: int
    documents: int
    mean: Float[np.ndarray, "head key"]
    low: Float[np.ndarray, "head key"]
    high: Float[np.ndarray, "head key"]
    predicted: Float[np.ndarray, "head key"]
    document_distance: Float[np.ndarray, "head"]

    @property
    def distance(self) -> Float[np.ndarray, "head"]:
        """Total variation of the mean attention from the predicted one: 0 equal, 1 disjoint."""
        return np.abs(self.mean - self.predicted).sum(axis=1) / 2


def text_attention(
    layer: Layer,
    documents: Sequence[Sequence[int] | TokenIds],
    query_positions: Sequence[int],
    heads: list[int] | None = None,
    band: float = 0.95,
    runner: Runner | None = None,
) -> list[Measured]:
    """Measured and predicted attention of each query position that some document reaches, in order."""
    heads = list(range(layer.n_heads)) if heads is None else heads
    layer.check_heads(heads)
    texts = checked_documents(layer, documents, query_positions)
    reached = [position for position in sorted(set(query_positions)) if position < max(map(len, texts))]
    predicted = [each[heads].astype(np.float64) for each in predicted_attention(layer, reached)]
    gatherers = [
        _Gatherer(position, sum(len(ids) > position for ids in texts), prediction, band)
        for position, prediction in zip(reached, predicted, strict=True)
    ]
    blocks = in_blocks(texts)

    def task(number: int) -> AttentionTask:
        return AttentionTask(text_block(layer, blocks[number], heads), reached)

    for found in (runner or Runner()).run(attention_of_block, task, len(blocks)):
        for gatherer in gatherers:
            gatherer.add(found[str(gatherer.position)])
    return [gatherer.measured() for gatherer in gatherers]


def attention_of_block(task: AttentionTask) -> Arrays:
    """For each query position, the rows [document, head, key] of the documents that have it, in float32."""
    rows: dict[str, list[Float[np.ndarray, "head key"]]] = {str(position): [] for position in task.query_positions}
    with one_thread():
        for inputs in task.block.inputs():
            reached = np.asarray([position for position in task.query_positions if position < len(inputs)])
            for position, scores in zip(reached, _scores(task.block, inputs, reached), strict=True):
                rows[str(position)].append(softmax(scores[:, : position + 1]))
    heads = len(task.block.query_bias)
    return {
        position: np.asarray(each, np.float32).reshape(len(each), heads, int(position) + 1)
        for position, each in rows.items()
    }


def _scores(
    block: TextBlock, inputs: Float[np.ndarray, "key d_model"], positions: Int[np.ndarray, "query"]
) -> Float[np.ndarray, "query head key"]:
    """The scores of some queries against every key of one document, as the model scales them."""
    queries = np.einsum("id,hdk->ihk", inputs[positions], block.query_weight, optimize=True) + block.query_bias
    through_keys = np.einsum("ihk,hdk->ihd", queries, block.key_weight, optimize=True)
    return (through_keys @ inputs.T) * inputs.dtype.type(block.attention_scale)


class _Gatherer:
    """Adds up the attention of one query position over blocks of documents."""

    def __init__(self, position: int, documents: int, predicted: Float[np.ndarray, "head key"], band: float) -> None:
        self.position, self._documents, self._predicted = position, documents, predicted
        self._band = Band(predicted.shape, documents, band)
        self._distance = np.zeros(len(predicted))

    def add(self, rows: Float[np.ndarray, "document head key"]) -> None:
        self._band.add(rows)
        self._distance += np.abs(rows - self._predicted).sum(axis=2).sum(axis=0) / 2

    def measured(self) -> Measured:
        band = self._band
        distance = self._distance / self._documents
        return Measured(self.position, self._documents, band.mean(), band.low(), band.high(), self._predicted, distance)


def region_masses(attention: Float[np.ndarray, "head key"]) -> dict[str, Float[np.ndarray, "head"]]:
    """Attention on the first key, on far keys, on the 15 recent ones, and on the query itself; they add up to 1.

    Each key is in one region: the query itself before the first, the first before the recent.
    """
    query = attention.shape[1] - 1
    begin = max(1, query - RECENT)
    return {
        "first": attention[:, 0] if query else np.zeros(len(attention)),
        "far": attention[:, 1:begin].sum(axis=1),
        "recent": attention[:, begin:query].sum(axis=1),
        "self": attention[:, query],
    }


class Band:
    """Mean and quantiles of each cell over `documents` documents, by linear interpolation between neighbours.

    A band that holds 95 % of documents needs only the largest and the smallest 2.5 % of each cell's numbers. How many
    documents there will be is known beforehand, so just these are kept: 5 % of the whole.
    """

    def __init__(self, cells: tuple[int, ...], documents: int, share: float) -> None:
        self._place = (1 - share) / 2 * (documents - 1)
        self._kept = min(documents, int(self._place) + 2)
        self._documents = documents
        self._sum = np.zeros(cells)
        self._lowest = np.empty((0, *cells), np.float32)
        self._highest = np.empty((0, *cells), np.float32)

    def add(self, values: Float[np.ndarray, "document *cell"]) -> None:
        """Some more documents."""
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
    """The number at a place that may lie between two neighbours."""
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    first = ordered[below].astype(np.float64)
    return first + (ordered[above] - first) * (place - below)

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
import polars as pl
from jaxtyping import Float, Int

from detoklens.analyses.bands import Band
from detoklens.analyses.block_runs import Arrays, Runner, one_thread
from detoklens.analyses.positions import chosen_queries, predicted_attention
from detoklens.analyses.text_blocks import TextBlock, TokenIds, checked_documents, in_blocks, text_block
from detoklens.scores.layer import Layer
from detoklens.scores.softmax import softmax
from detoklens.tables.attention import ATTENTION, ATTENTION_AGREEMENT

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


def text_attention(
    layer: Layer,
    documents: Sequence[Sequence[int] | TokenIds],
    query_positions: Sequence[int] | None = None,
    heads: list[int] | None = None,
    band: float = 0.95,
    runner: Runner | None = None,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Measured and predicted attention per key, as ATTENTION, and how they agree, as ATTENTION_AGREEMENT."""
    positions = chosen_queries(layer, query_positions)
    heads = list(range(layer.n_heads)) if heads is None else heads
    layer.check_heads(heads)
    texts = checked_documents(layer, documents, positions)
    reached = [position for position in positions if position < max(map(len, texts))]
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
    measured = [gatherer.measured() for gatherer in gatherers]
    return _key_table(measured, heads), _agreement_table(measured, heads)


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


def _key_table(measured: Sequence[Measured], heads: list[int]) -> pl.DataFrame:
    frames = [
        ATTENTION.frame(
            {
                "head": np.repeat(heads, each.query_position + 1),
                "query_position": np.full(each.mean.size, each.query_position),
                "key_position": np.tile(np.arange(each.query_position + 1), len(heads)),
                "mean": each.mean.ravel(),
                "low": each.low.ravel(),
                "high": each.high.ravel(),
                "predicted": each.predicted.ravel(),
                "documents": np.full(each.mean.size, each.documents),
            }
        )
        for each in measured
    ]
    return pl.concat(frames).sort("head", "query_position", "key_position")


def _agreement_table(measured: Sequence[Measured], heads: list[int]) -> pl.DataFrame:
    frames = [
        ATTENTION_AGREEMENT.frame(
            {
                "head": heads,
                "query_position": np.full(len(heads), each.query_position),
                "total_variation": np.abs(each.mean - each.predicted).sum(axis=1) / 2,
                "document_total_variation": each.document_distance,
                **{f"measured_{region}": mass for region, mass in region_masses(each.mean).items()},
                **{f"predicted_{region}": mass for region, mass in region_masses(each.predicted).items()},
                "documents": np.full(len(heads), each.documents),
            }
        )
        for each in measured
    ]
    return pl.concat(frames).sort("head", "query_position")


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

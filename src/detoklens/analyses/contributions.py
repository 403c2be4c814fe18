"""How much would attention on real text change if one term were missing?

For each document, head, query i and term t: the KL divergence between the attention without the term, P, and the whole
attention, Q (the paper's Figure 4). Averaged over documents, with the standard error of that mean, and the share of
documents where another key becomes the most attended one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
from jaxtyping import Bool, Float, Int

from detoklens.analyses.block_runs import Arrays, Runner, one_thread
from detoklens.analyses.moments import Moments
from detoklens.analyses.text_blocks import (
    DocumentFactors,
    TextBlock,
    TokenIds,
    checked_documents,
    in_blocks,
    text_block,
)
from detoklens.kernels.contributions import TERMS, term_divergences
from detoklens.scores.layer import Layer
from detoklens.tables.contributions import CONTRIBUTIONS, CONTRIBUTIONS_BY_HEAD

ROWS = 64
"""Query rows whose scores are held at once: four arrays of 64 × 1,024 numbers, 1 MB."""


@dataclass(frozen=True)
class Formula:
    """Where the paper and its published code differ, each by name.

    direction: D(P‖Q), from the attention `without` the term to the whole, or D(Q‖P), from the `whole` attention.
    scaling: softmax of the scores as the model scales them (s / sqrt(d')), or of the unscaled s.
    reduction: the divergence itself, a sum over keys, or its mean over the i + 1 keys.
    """

    direction: Literal["without", "whole"] = "without"
    scaling: Literal["scaled", "unscaled"] = "scaled"
    reduction: Literal["sum", "mean"] = "sum"


PAPER = Formula()
PUBLISHED = Formula("whole", "unscaled", "mean")


@dataclass(frozen=True)
class ContributionTask:
    """A block of documents and what is asked of it."""

    block: TextBlock
    query_positions: Int[np.ndarray, "query"]
    formula: Formula


def contributions(
    layer: Layer,
    documents: Sequence[Sequence[int] | TokenIds],
    query_positions: Sequence[int] | None = None,
    heads: list[int] | None = None,
    formula: Formula = PAPER,
    runner: Runner | None = None,
) -> pl.DataFrame:
    """The contribution of each term at each query position (by default at all), as CONTRIBUTIONS."""
    positions = sorted(set(range(layer.n_positions) if query_positions is None else query_positions))
    heads = list(range(layer.n_heads)) if heads is None else heads
    layer.check_heads(heads)
    texts = checked_documents(layer, documents, positions)
    asked = np.asarray([position for position in positions if position < max(map(len, texts))])
    blocks = in_blocks(texts)

    def task(number: int) -> ContributionTask:
        return ContributionTask(text_block(layer, blocks[number], heads), asked, formula)

    total = Moments.none(len(asked), (len(heads), len(TERMS)))
    for found in (runner or Runner()).run(contributions_of_block, task, len(blocks)):
        total = total.merged(Moments.from_arrays(found))
    return _table(total, heads, asked)


def contributions_of_block(task: ContributionTask) -> Arrays:
    """The moments of the divergences over the documents of one block."""
    block, heads = task.block, len(task.block.query_bias)
    total = Moments.none(len(task.query_positions), (heads, len(TERMS)))
    with one_thread():
        for factors in block.factors():
            seen = task.query_positions[task.query_positions < factors.query_token.shape[1]]
            total = total.merged(Moments.one(*_divergences(factors, block, seen, task.formula), total.shape))
    return total.to_arrays()


def _divergences(
    factors: DocumentFactors, block: TextBlock, positions: Int[np.ndarray, "query"], formula: Formula
) -> tuple[Float[np.ndarray, "query head term"], Bool[np.ndarray, "query head term"]]:
    """The divergences of one document at some query positions, and where the top key changes."""
    shape = (len(positions), len(block.query_bias), len(TERMS))
    divergence, changed = np.empty(shape), np.empty(shape, np.bool_)
    unit = factors.query_token.dtype.type((block.attention_scale if formula.scaling == "scaled" else 1.0) / np.log(2.0))
    for head, rows, query, key in _row_blocks(factors, positions):
        term_divergences(
            (query * unit)[:, None] @ key[None],
            block.query_bias[head] * unit @ key,
            positions[rows] + 1,
            formula.direction == "without",
            divergence[rows, head],
            changed[rows, head],
        )
    if formula.reduction == "mean":
        divergence /= positions[:, None, None] + 1
    return divergence, changed


def _row_blocks(
    factors: DocumentFactors, positions: Int[np.ndarray, "query"]
) -> Iterator[tuple[int, slice, Float[np.ndarray, "factor query d_head"], Float[np.ndarray, "factor d_head key"]]]:
    """(head, rows, query factors, key factors), a few rows at a time with no more keys than they see."""
    for head in range(len(factors.query_token)):
        query = np.stack([factors.query_token[head], factors.query_position[head]])
        key = np.ascontiguousarray(np.stack([factors.key_token[head].T, factors.key_position[head].T]))
        for begin in range(0, len(positions), ROWS):
            rows = slice(begin, min(begin + ROWS, len(positions)))
            yield head, rows, query[:, positions[rows]], key[:, :, : positions[rows][-1] + 1]


def _table(total: Moments, heads: list[int], positions: Int[np.ndarray, "query"]) -> pl.DataFrame:
    order = (1, 0, 2)  # from query, head, term to head, query, term
    shape = (len(heads), len(positions), len(TERMS))
    return CONTRIBUTIONS.frame(
        {
            "head": np.broadcast_to(np.asarray(heads)[:, None, None], shape).ravel(),
            "query_position": np.broadcast_to(positions[None, :, None], shape).ravel(),
            "term": np.broadcast_to(np.asarray(TERMS), shape).ravel(),
            "kl": total.mean.transpose(order).ravel(),
            "standard_error": total.standard_error().transpose(order).ravel(),
            "top_changed": total.share_flagged().transpose(order).ravel(),
            "documents": np.broadcast_to(total.count[None, :, None], shape).ravel(),
        }
    )


def contributions_by_head(table: pl.DataFrame) -> pl.DataFrame:
    """Which terms carry a head's attention? The means over query positions, as CONTRIBUTIONS_BY_HEAD."""
    means = table.group_by("head", "term", maintain_order=True).agg(pl.col("kl", "top_changed").mean())
    ranked = means.with_columns(
        share=pl.col("kl") / pl.col("kl").sum().over("head"),
        rank=pl.col("kl").rank("ordinal", descending=True).over("head"),
    )
    return CONTRIBUTIONS_BY_HEAD.conform(ranked.sort("head", "rank"))

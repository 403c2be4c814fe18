"""How far attention on text moves when a term is removed.

For each document, head, query i and term t: the KL divergence between the attention without the term, P, and the full
attention, Q (the paper's Figure 4). Averaged over documents, with the standard error of that mean and the share of
documents in which the most attended key changes. Terms that act in the same direction can mask each other when only
one of them is removed, so groups of terms are removed together as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from detoklens.kernels.contributions import term_divergences
from detoklens.measures.documents import (
    DocumentFactors,
    OffsetBlock,
    Rules,
    TextBlock,
    TokenIds,
    checked_documents,
    in_blocks,
    text_block,
)
from detoklens.parallel import Arrays, Runner
from detoklens.scores.factors import Mean
from detoklens.scores.layer import Layer
from detoklens.scores.softmax import check_rounding

ROWS = 64
"""Query rows scored at once: four arrays of 64 × 1,024 numbers, 1 MB."""


@dataclass(frozen=True)
class Formula:
    """The choices in which the paper and its published code differ.

    direction: `without` is D(P‖Q), `whole` is D(Q‖P).
    scaling: softmax of the scaled scores s / √d′, or of s.
    reduction: the divergence, a sum over keys, or its mean over the visible keys.
    """

    direction: Literal["without", "whole"] = "without"
    scaling: Literal["scaled", "unscaled"] = "scaled"
    reduction: Literal["sum", "mean"] = "sum"


PAPER = Formula()
PUBLISHED = Formula("whole", "unscaled", "mean")


GROUPS = {"position": ("p", "pp"), "token": ("e", "ee"), "mixed": ("ep", "pe"), "self-assertion": ("e", "p")}
"""The abstract's position-related, token-related and mixed effects, and the terms that biases make."""


@dataclass(frozen=True)
class Divergences:
    """The contribution of each term, and of each group of terms, at each query position that some document reaches."""

    terms: tuple[str, ...]
    """The terms, followed by the groups."""
    query_positions: Int[np.ndarray, "query"]
    mean: Float[np.ndarray, "head query term"]
    standard_error: Float[np.ndarray, "head query term"]
    top_changed: Float[np.ndarray, "head query term"]
    documents: Int[np.ndarray, "query"]


def contributions(
    layer: Layer,
    documents: Sequence[Sequence[int] | TokenIds],
    query_positions: Sequence[int] | None = None,
    heads: list[int] | None = None,
    formula: Formula = PAPER,
    runner: Runner | None = None,
    mean: Mean = None,
    groups: Mapping[str, Sequence[str]] | None = None,
) -> Divergences:
    """The contribution of each term at each query position that some document reaches; all positions by default.

    The terms are those of `layer.terms(ids, mean)`. Each of the named `groups` of terms is removed at once;
    groups of terms that the layer lacks are left out.
    """
    positions = sorted(set(range(layer.n_positions) if query_positions is None else query_positions))
    heads = list(range(layer.n_heads)) if heads is None else heads
    layer.check_heads(heads)
    texts = checked_documents(layer, documents, positions)
    asked = np.asarray([position for position in positions if position < max(map(len, texts))])
    blocks = in_blocks(texts)
    terms = tuple(text_block(layer, [texts[0][:1]], heads[:1], mean).rules.terms)
    present = {name: set(members) & set(terms) for name, members in (groups or {}).items()}
    present = {name: members for name, members in present.items() if members}
    removed = np.array([[term in members for term in terms] for members in present.values()], np.bool_)
    removed = removed.reshape(len(present), len(terms))

    def compute(number: int) -> Arrays:
        return contributions_of_block(text_block(layer, blocks[number], heads, mean), asked, formula, removed)

    names = (*terms, *present)
    total = Moments.none(len(asked), (len(heads), len(names)))
    for found in (runner or Runner()).run(compute, len(blocks)):
        total = total.merged(Moments(**found))
    order = (1, 0, 2)  # from query, head, term to head, query, term
    error, changed = total.standard_error(), total.share_flagged()
    return Divergences(
        names, asked, total.mean.transpose(order), error.transpose(order), changed.transpose(order), total.count
    )


def contributions_of_block(
    block: TextBlock | OffsetBlock,
    query_positions: Int[np.ndarray, "query"],
    formula: Formula,
    groups: Bool[np.ndarray, "group term"],
) -> Arrays:
    """The moments of the divergences over the documents of one block."""
    total = Moments.none(len(query_positions), (block.n_heads, len(block.rules.terms) + len(groups)))
    for factors in block.factors():
        seen = query_positions[query_positions < factors.n_tokens]
        total = total.merged(Moments.one(*_divergences(factors, block.rules, seen, formula, groups), total.shape))
    return dict(vars(total))


def _divergences(
    factors: DocumentFactors,
    rules: Rules,
    positions: Int[np.ndarray, "query"],
    formula: Formula,
    groups: Bool[np.ndarray, "group term"],
) -> tuple[Float[np.ndarray, "query head term"], Bool[np.ndarray, "query head term"]]:
    """The divergences of one document at some query positions, and where the top key changes."""
    n_heads = factors.query.shape[1]
    shape = (len(positions), n_heads, len(rules.terms) + len(groups))
    divergence, changed = np.empty(shape), np.empty(shape, np.bool_)
    unit = factors.query.dtype.type((rules.attention_scale if formula.scaling == "scaled" else 1.0) / np.log(2.0))
    cap = 0.0 if rules.softcap is None else float(unit) * rules.softcap / rules.attention_scale
    seen = [rules.seen(int(position), factors.n_tokens) for position in positions]
    begins, ends = np.array([keys.start for keys in seen]), np.array([keys.stop for keys in seen])
    order = np.array(list(rules.terms.values()))
    for head in range(n_heads):
        keys = factors.keys_of(head)
        for begin in range(0, len(ends), ROWS):
            rows = slice(begin, min(begin + ROWS, len(ends)))
            visible = keys[:, :, : ends[rows][-1]]
            pair_scores = factors.pair_scores(head, positions[rows], visible, unit)
            key_scores = factors.key_scores(head, visible, unit)
            # The compiled loop does not check.
            assert len(pair_scores) + len(key_scores) == len(order), "documents lack a declared term"
            check_rounding(pair_scores, float(np.log(2.0)))
            check_rounding(key_scores, float(np.log(2.0)))
            term_divergences(
                pair_scores,
                key_scores,
                order,
                groups,
                begins[rows],
                ends[rows],
                cap,
                formula.direction == "without",
                divergence[rows, head],
                changed[rows, head],
            )
    if formula.reduction == "mean":
        divergence /= (ends - begins)[:, None, None]
    return divergence, changed


@dataclass(frozen=True)
class Moments:
    """For each query position the number of documents, and per cell their mean, sum of squared deviations and flags.

    Accumulated block by block in float64 with Chan's formula, which keeps the digits of a small spread around a large
    mean: M = M_a + M_b + (mean_b − mean_a)² n_a n_b / (n_a + n_b).
    """

    count: Int[np.ndarray, "query"]
    mean: Float[np.ndarray, "query *cell"]
    squares: Float[np.ndarray, "query *cell"]
    flags: Int[np.ndarray, "query *cell"]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.mean.shape

    @property
    def _column(self) -> tuple[slice | None, ...]:
        """The index that spreads a number per query over its cells."""
        return (slice(None), *(None,) * (self.mean.ndim - 1))

    @classmethod
    def none(cls, queries: int, cell: tuple[int, ...]) -> Moments:
        """The moments of no documents."""
        shape = (queries, *cell)
        return cls(np.zeros(queries, np.int64), np.zeros(shape), np.zeros(shape), np.zeros(shape, np.int64))

    @classmethod
    def one(
        cls, values: Float[np.ndarray, "seen *cell"], flags: Bool[np.ndarray, "seen *cell"], shape: tuple[int, ...]
    ) -> Moments:
        """The moments of one document, which reaches the first `len(values)` query positions."""
        document = cls.none(shape[0], shape[1:])
        document.count[: len(values)] = 1
        document.mean[: len(values)] = values
        document.flags[: len(values)] = flags
        return document

    def merged(self, other: Moments) -> Moments:
        """The moments of both sets of documents."""
        count = self.count + other.count
        column = self._column
        share = (other.count / np.maximum(count, 1))[column]
        difference = other.mean - self.mean
        return Moments(
            count,
            self.mean + difference * share,
            self.squares + other.squares + difference**2 * share * self.count[column],
            self.flags + other.flags,
        )

    def standard_error(self) -> Float[np.ndarray, "query *cell"]:
        """The standard error of the mean; NaN for a single document."""
        count = self.count[self._column].astype(np.float64)
        return np.sqrt(np.where(count > 1, self.squares, np.nan) / (np.maximum(count - 1, 1) * np.maximum(count, 1)))

    def share_flagged(self) -> Float[np.ndarray, "query *cell"]:
        return self.flags / self.count[self._column]

"""How much attention on text changes when a term is removed.

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
    DocumentTerms,
    Rules,
    TokenIds,
    checked_documents,
    in_blocks,
)
from detoklens.parallel import Arrays, Runner
from detoklens.scores.factors import Mean
from detoklens.scores.layer import Layer
from detoklens.scores.softmax import LARGEST_ROUNDING, check_rounding


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
    layer.check(heads=heads)
    texts = checked_documents(layer, documents, positions)
    reached = np.asarray([position for position in positions if position < max(map(len, texts))])
    blocks, terms = in_blocks(texts), DocumentTerms(layer, heads, texts, mean)
    names = tuple(terms.rules.terms)
    present = {name: members for name, members in (groups or {}).items() if set(members) & set(names)}
    removed = np.array([[term in members for term in names] for members in present.values()], np.bool_)
    removed = removed.reshape(len(present), len(names))
    shape = (len(reached), len(heads), len(names) + len(present))

    def compute(number: int) -> Arrays:
        total = Moments.none(shape)
        for factors in terms.factors(blocks[number]):
            total = total.merged(Moments.one(*_divergences(factors, terms.rules, reached, formula, removed), shape))
        return dict(vars(total))

    total = Moments.none(shape)
    for found in (runner or Runner()).run(compute, len(blocks)):
        total = total.merged(Moments(**found))
    mean, error, changed = (
        each.transpose(1, 0, 2) for each in (total.mean, total.standard_error(), total.share_flagged())
    )
    return Divergences((*names, *present), reached, mean, error, changed, total.count)


def _divergences(
    factors: DocumentFactors,
    rules: Rules,
    query_positions: Int[np.ndarray, "query"],
    formula: Formula,
    groups: Bool[np.ndarray, "group term"],
) -> tuple[Float[np.ndarray, "query head term"], Bool[np.ndarray, "query head term"]]:
    """The divergences of one document at the query positions that it reaches, and where the top key changes."""
    positions, n_heads = query_positions[query_positions < factors.n_tokens], factors.n_heads
    begins, ends = rules.seen(positions, factors.n_tokens)
    n_keys = int(ends[-1])
    unit = factors.dtype.type((rules.attention_scale if formula.scaling == "scaled" else 1.0) / np.log(2.0))
    cap = 0.0 if rules.softcap is None else float(unit) * rules.softcap / rules.attention_scale
    order = np.array(list(rules.terms.values()))
    divergence = np.empty((len(positions), n_heads, len(order) + len(groups)))
    changed = np.empty(divergence.shape, np.bool_)
    with np.errstate(over="ignore"):
        largest = factors.largest_score() * float(unit) * np.log(2.0)
    may_be_rounded = not largest * np.finfo(factors.dtype).epsneg <= LARGEST_ROUNDING
    for head in range(n_heads):
        of_head = factors.of_head(head, positions, n_keys, unit)
        # The compiled loop does not check.
        assert of_head.n_terms == len(order), "documents lack a declared term"
        if may_be_rounded:
            for scores in of_head.terms():
                check_rounding(scores[:, :n_keys], float(np.log(2.0)))
        term_divergences(
            of_head.queries,
            of_head.keys,
            of_head.key_scores,
            of_head.slope or 0.0,
            positions,
            order,
            groups,
            begins,
            ends,
            cap,
            formula.direction == "without",
            divergence[:, head],
            changed[:, head],
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
    mean: Float[np.ndarray, "query head term"]
    squares: Float[np.ndarray, "query head term"]
    flags: Int[np.ndarray, "query head term"]

    @classmethod
    def none(cls, shape: tuple[int, int, int]) -> Moments:
        """The moments of no documents."""
        return cls(np.zeros(shape[0], np.int64), np.zeros(shape), np.zeros(shape), np.zeros(shape, np.int64))

    @classmethod
    def one(
        cls,
        values: Float[np.ndarray, "seen head term"],
        flags: Bool[np.ndarray, "seen head term"],
        shape: tuple[int, int, int],
    ) -> Moments:
        """The moments of one document, which reaches the first `len(values)` query positions."""
        document = cls.none(shape)
        document.count[: len(values)] = 1
        document.mean[: len(values)] = values
        document.flags[: len(values)] = flags
        return document

    def merged(self, other: Moments) -> Moments:
        """The moments of both sets of documents."""
        count = self.count + other.count
        share = (other.count / np.maximum(count, 1))[:, None, None]
        difference = other.mean - self.mean
        return Moments(
            count,
            self.mean + difference * share,
            self.squares + other.squares + difference**2 * share * self.count[:, None, None],
            self.flags + other.flags,
        )

    def standard_error(self) -> Float[np.ndarray, "query head term"]:
        """The standard error of the mean; NaN for a single document."""
        count = self.count[:, None, None].astype(np.float64)
        return np.sqrt(np.where(count > 1, self.squares, np.nan) / (np.maximum(count - 1, 1) * np.maximum(count, 1)))

    def share_flagged(self) -> Float[np.ndarray, "query head term"]:
        return self.flags / self.count[:, None, None]

"""Contributions as their definition reads, one document, head, query and term at a time."""

from __future__ import annotations

import numpy as np
from scipy.special import log_softmax

from detoklens.measures.contributions import Formula
from detoklens.scores.layer import Layer

TERMS = ("ee", "pp", "pe", "ep", "e", "p")


def plain_divergence(whole: np.ndarray, without: np.ndarray, formula: Formula) -> float:
    """Σ_j p_j (log p_j − log q_j), of two rows of scores."""
    log_whole, log_without = log_softmax(whole), log_softmax(without)
    first, second = (log_without, log_whole) if formula.direction == "without" else (log_whole, log_without)
    summands = np.exp(first) * (first - second)
    return float(summands.mean() if formula.reduction == "mean" else summands.sum())


def plain_contributions(layer: Layer, documents: list[list[int]], formula: Formula) -> dict[tuple, list[tuple]]:
    """(head, query position, term) → (divergence, does the top key change) of each document that is long enough."""
    found: dict[tuple, list[tuple]] = {}
    for ids in documents:
        terms = layer.terms(ids)
        scale = layer.attention_scale if formula.scaling == "scaled" else 1.0
        for head in range(layer.n_heads):
            for query in range(len(ids)):
                whole = terms.total()[head, query, : query + 1] * scale
                for term in TERMS:
                    without = terms.without(term)[head, query, : query + 1] * scale
                    values = (plain_divergence(whole, without, formula), whole.argmax() != without.argmax())
                    found.setdefault((head, query, term), []).append(values)
    return found

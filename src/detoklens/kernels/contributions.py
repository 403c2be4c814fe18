"""Compiled loops over rows of scores: the divergence of each row's softmax when one term is removed.

With a the whole score of a row in units of ln 2, t one term and a′ = a − t, the distributions are Q = 2^a / 2^ℓ and
P = 2^a′ / 2^ℓ′, where ℓ = log₂ Σ 2^a. The logarithms of P and Q differ by −t − ℓ′ + ℓ, so that

    D(P‖Q) = ln 2 · ( −E_P[t] − ℓ′ + ℓ )        D(Q‖P) = ln 2 · ( E_Q[t] + ℓ′ − ℓ )

and a row needs one exponential for each key and term, and no logarithm of a probability. If a model caps scores, a and
a′ are the capped ones, and t is their difference.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from detoklens.kernels.compiling import compiled

LOWEST = np.float32(-126)
"""Below 2^−126 float32 has no normal numbers; smaller exponents are clipped, which no sum notices."""
COEFFICIENTS = tuple(
    np.float32(value)
    for value in (1.5353362e-4, 1.3398874e-3, 9.6184373e-3, 5.5503324e-2, 2.4022648e-1, 6.9314720e-1, 1.0)
)


def exp2(exponent: float) -> float:
    """2^exponent for exponents up to 0, in compiled code only."""
    raise NotImplementedError("exp2 is for compiled loops")


@overload(exp2, inline="always")
def _exp2(exponent: Any) -> Any:
    return _single if exponent == types.float32 else _double


def _double(exponent: Any) -> Any:
    return math.exp(exponent * 0.6931471805599453)


def _single(exponent: Any) -> Any:
    c6, c5, c4, c3, c2, c1, c0 = COEFFICIENTS
    bounded = max(exponent, LOWEST)
    whole = np.int32(bounded - np.float32(0.5))
    rest = bounded - np.float32(whole)
    series = ((((((c6 * rest + c5) * rest + c4) * rest + c3) * rest) + c2) * rest + c1) * rest + c0
    power = np.int32((whole + np.int32(127)) << np.int32(23))
    return series * power.view(np.float32)


SIMD = {"reassoc", "contract", "nnan", "nsz"}
"""Sums in the order of the vector lanes, products and sums in one step.

Helpers with this are inlined: a helper compiled once by itself and once more inside its caller may add in two orders,
and which of the two runs would depend on whether the code was just compiled or comes from numba's cache.
"""
APART = 64
"""Numbers between two buffers. If they were adjacent, a vector loop could not rule out overlap and would fall back to
scalars: sums would depend on the buffers' addresses."""


@compiled(fastmath=SIMD)
def term_divergences(
    pair_scores: np.ndarray,
    key_scores: np.ndarray,
    order: np.ndarray,
    groups: np.ndarray,
    begins: np.ndarray,
    ends: np.ndarray,
    cap: float,
    removed_first: bool,
    divergence: np.ndarray,
    top_changed: np.ndarray,
) -> None:
    """Write D(P‖Q) (or, not `removed_first`, D(Q‖P)) and whether the top key changes for each [row, term or group].

    pair_scores [pair, row, key] are the terms of query and key, key_scores [other, key] those of the key alone; `order`
    says which of them, one after the other, is which term. `groups` [group, term] says which terms are removed at once;
    they follow the single terms. Row r sees the keys from begins[r] to before ends[r]. All
    scores are in units of ln 2, and so is `cap`, at which a model bends them (0: it does not).
    """
    scores = np.empty(pair_scores.shape[2] + APART, pair_scores.dtype)
    whole = np.empty_like(scores)
    bent = np.empty_like(scores)
    moved = np.empty_like(scores)
    joined = np.empty_like(scores)
    every = np.ones(len(order), np.bool_)
    for row in range(len(begins)):
        begin, end = begins[row], ends[row]
        keys = end - begin
        if keys == 1:  # All attention is on the one key, regardless of its score; rounding would leave 1e-9.
            divergence[row, :] = 0.0
            top_changed[row, :] = False
            continue
        _add_up(pair_scores, key_scores, order, every, row, begin, end, scores)
        seen = scores[:keys]
        if cap > 0:
            _bend(scores[:keys], cap, bent)
            seen = bent[:keys]
        top = _largest(seen)
        log_sum = _softmax_weights(seen, top, whole)
        top_key = _first_equal(seen, top)
        for place in range(len(order) + len(groups)):
            if place < len(order):
                term = _term(pair_scores, key_scores, order[place], row, begin, end)
            else:
                _add_up(pair_scores, key_scores, order, groups[place - len(order)], row, begin, end, joined)
                term = joined[:keys]
            if cap > 0:
                _bent_apart(scores[:keys], seen, term, cap, moved)
                term = moved[:keys]
            found = _divergence(seen, whole[:keys], term, log_sum, removed_first)
            divergence[row, place] = found[0]
            top_changed[row, place] = seen[top_key] - term[top_key] < found[1]


@compiled(inline="always")
def _term(pair_scores: np.ndarray, key_scores: np.ndarray, which: int, row: int, begin: int, end: int) -> np.ndarray:
    """One term of one row along the keys that it sees."""
    pairs = len(pair_scores)
    return pair_scores[which, row, begin:end] if which < pairs else key_scores[which - pairs, begin:end]


@compiled(inline="always", fastmath=SIMD)
def _add_up(
    pair_scores: np.ndarray,
    key_scores: np.ndarray,
    order: np.ndarray,
    chosen: np.ndarray,
    row: int,
    begin: int,
    end: int,
    scores: np.ndarray,
) -> None:
    """Write the sum of the chosen terms at each key."""
    for key in range(end - begin):
        scores[key] = 0
    for place in range(len(order)):
        if not chosen[place]:
            continue
        term = _term(pair_scores, key_scores, order[place], row, begin, end)
        for key in range(len(term)):
            scores[key] += term[key]


@compiled(inline="always", fastmath=SIMD)
def _largest(scores: np.ndarray) -> float:
    top = scores[0]
    for key in range(len(scores)):
        top = max(top, scores[key])
    return top


@compiled(inline="always", fastmath=SIMD)
def _bend(scores: np.ndarray, cap: float, bent: np.ndarray) -> None:
    """Write cap · tanh(score / cap)."""
    for key in range(len(scores)):
        bent[key] = cap * math.tanh(scores[key] / cap)


@compiled(inline="always", fastmath=SIMD)
def _bent_apart(scores: np.ndarray, bent: np.ndarray, term: np.ndarray, cap: float, moved: np.ndarray) -> None:
    """Write by how much each capped score falls when a term is removed before capping."""
    for key in range(len(scores)):
        moved[key] = bent[key] - cap * math.tanh((scores[key] - term[key]) / cap)


@compiled(inline="always", fastmath=SIMD)
def _softmax_weights(scores: np.ndarray, top: float, weights: np.ndarray) -> float:
    """Write the softmax of the scores; the logarithm of its denominator is returned."""
    total = scores[0] - scores[0]
    for key in range(len(scores)):
        weights[key] = exp2(scores[key] - top)
        total += weights[key]
    for key in range(len(scores)):
        weights[key] /= total
    return top + math.log2(np.float64(total))


@compiled()
def _first_equal(scores: np.ndarray, value: float) -> int:
    for key in range(len(scores)):
        if scores[key] == value:
            return key
    return 0


@compiled(inline="always", fastmath=SIMD)
def _divergence(
    scores: np.ndarray, whole: np.ndarray, term: np.ndarray, log_sum: float, removed_first: bool
) -> tuple[float, float]:
    """The divergence of one row and term, and the largest score without the term."""
    top = scores[0] - term[0]
    for key in range(len(scores)):
        top = max(top, scores[key] - term[key])
    total = weighted = expected = scores[0] - scores[0]
    for key in range(len(scores)):
        weight = exp2(scores[key] - term[key] - top)
        total += weight
        weighted += weight * term[key]
        expected += whole[key] * term[key]
    shift = top + math.log2(np.float64(total)) - log_sum
    bits = -np.float64(weighted) / total - shift if removed_first else np.float64(expected) + shift
    # Rounding can leave a divergence of nothing a hair below 0.
    return max(bits * math.log(2.0), 0.0), top

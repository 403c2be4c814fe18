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
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

from detoklens.kernels.compiling import compiled
from detoklens.kernels.product import QUERIES, fill_tile

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


@intrinsic
def larger(_: Any, one: Any, _other: Any) -> tuple[Any, Any]:
    """The larger of two numbers: LLVM runs a loop over these in vector lanes, unlike one over Python's `max`."""

    def emit(_context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Any) -> ir.Value:
        number = arguments[0].type
        function = builder.module.declare_intrinsic("llvm.maxnum", [number], ir.FunctionType(number, [number] * 2))
        return builder.call(function, arguments)

    return one(one, one), emit


SIMD = {"reassoc", "contract", "nnan", "nsz"}
"""Sums in the order of the vector lanes, products and sums in one step."""
PADDING = 64
"""Loops run over whole vectors: keys with a score of −∞ and terms of 0 fill them up."""


@compiled()
def multiply_factors(
    queries: np.ndarray, rows: np.ndarray, unit: float, panels: np.ndarray, scores: np.ndarray
) -> None:
    """Write the products of some rows of each query factor, times `unit`, with each key factor, as [pair, row, key].

    queries [factor, row, dimension] are plain, keys [factor, panel, dimension, key] packed; pairs are sorted by key
    factor. The rows of `scores` fill whole panels of queries, its keys whole panels of keys, maybe not all.
    """
    factors, dimensions, width = len(queries), queries.shape[2], panels.shape[3]
    n_rows, columns = scores.shape[1:]
    packed = np.zeros((factors, n_rows // QUERIES, dimensions, QUERIES), scores.dtype)
    for factor in range(factors):
        for place in range(len(rows)):
            for dimension in range(dimensions):
                packed[factor, place // QUERIES, dimension, place % QUERIES] = (
                    queries[factor, rows[place], dimension] * unit
                )
    flat_queries, flat_keys, flat_scores = packed.reshape(-1), panels.reshape(-1), scores.reshape(-1)
    for factor in range(len(panels)):
        for key_panel in range(columns // width):
            for panel in range(factors * n_rows // QUERIES):
                fill_tile(
                    flat_queries,
                    panel * dimensions * QUERIES,
                    flat_keys,
                    (factor * panels.shape[1] + key_panel) * dimensions * width,
                    dimensions,
                    flat_scores,
                    (factor * factors * n_rows + panel * QUERIES) * columns + key_panel * width,
                    columns,
                )


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
    they follow the single terms. Row r sees the keys from begins[r] to before ends[r]. All scores are in units of ln 2,
    and so is `cap`, at which a model bends them (0: it does not).

    A row's terms are copied next to each other first: every slice of an array would be counted as a reference to it.
    """
    n_terms, n_pairs = len(order), len(pair_scores)
    terms = np.empty((n_terms + len(groups), pair_scores.shape[2] + PADDING), pair_scores.dtype)
    scores, whole = np.empty_like(terms[0]), np.empty_like(terms[0])
    for row in range(len(begins)):
        begin, end = begins[row], ends[row]
        keys = end - begin
        if keys == 1:  # All attention is on the one key, regardless of its score; rounding would leave 1e-9.
            divergence[row, :] = 0.0
            top_changed[row, :] = False
            continue
        padded = -(-keys // PADDING) * PADDING
        for key in range(padded):
            scores[key] = 0
        for place in range(n_terms):
            which = order[place]
            term = pair_scores[which, row, begin:end] if which < n_pairs else key_scores[which - n_pairs, begin:end]
            for key in range(keys):
                terms[place, key] = term[key]
                scores[key] += term[key]
        for group in range(len(groups)):
            for key in range(keys):
                terms[n_terms + group, key] = 0
            for place in range(n_terms):
                if groups[group, place]:
                    for key in range(keys):
                        terms[n_terms + group, key] += terms[place, key]
        if cap > 0:
            for key in range(keys):
                whole[key] = cap * math.tanh(scores[key] / cap)
            for place in range(len(terms)):
                for key in range(keys):
                    terms[place, key] = whole[key] - cap * math.tanh((scores[key] - terms[place, key]) / cap)
            for key in range(keys):
                scores[key] = whole[key]
        for key in range(keys, padded):
            scores[key] = -np.inf
            for place in range(len(terms)):
                terms[place, key] = 0
        top = scores[0]
        for key in range(padded):
            top = larger(top, scores[key])
        total = scores[0] - scores[0]
        for key in range(padded):
            whole[key] = exp2(scores[key] - top)
            total += whole[key]
        for key in range(padded):
            whole[key] /= total
        log_sum = top + math.log2(np.float64(total))
        top_key = 0
        while scores[top_key] != top:
            top_key += 1
        for place in range(len(terms)):
            top_without = scores[0] - terms[place, 0]
            for key in range(padded):
                top_without = larger(top_without, scores[key] - terms[place, key])
            total = weighted = expected = scores[0] - scores[0]
            for key in range(padded):
                weight = exp2(scores[key] - terms[place, key] - top_without)
                total += weight
                weighted += weight * terms[place, key]
                expected += whole[key] * terms[place, key]
            shift = top_without + math.log2(np.float64(total)) - log_sum
            bits = -np.float64(weighted) / total - shift if removed_first else np.float64(expected) + shift
            # Rounding can leave a divergence of nothing a hair below 0.
            divergence[row, place] = max(bits * math.log(2.0), 0.0)
            top_changed[row, place] = scores[top_key] - terms[place, top_key] < top_without

"""Compiled loops over rows of scores: the divergence of each row's softmax when one term is removed.

With a the whole score of a row in units of ln 2, t one term and a′ = a − t, the distributions are Q = 2^a / 2^ℓ and
P = 2^a′ / 2^ℓ′, where ℓ = log₂ Σ 2^a. The logarithms of P and Q differ by −t − ℓ′ + ℓ, so that

    D(P‖Q) = ln 2 · ( −E_P[t] − ℓ′ + ℓ )        D(Q‖P) = ln 2 · ( E_Q[t] + ℓ′ − ℓ )

and a row needs one exponential for each key and term, and no logarithm of a probability. If a model caps scores, a and
a′ are the capped ones, and t is their difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable
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
    """2^exponent for exponents up to 127, in compiled code only."""
    raise NotImplementedError("exp2 is for compiled loops")


@overload(exp2, inline="always")
def _exp2(exponent: Any) -> Any:
    return _single if exponent == types.float32 else _double


def _double(exponent: Any) -> Any:
    return math.exp(exponent * 0.6931471805599453)


def _single(exponent: Any) -> Any:
    c6, c5, c4, c3, c2, c1, c0 = COEFFICIENTS
    bounded = larger(exponent, LOWEST)
    whole = nearest(bounded)
    rest = bounded - whole
    series = (((((c6 * rest + c5) * rest + c4) * rest + c3) * rest + c2) * rest + c1) * rest + c0
    bits = np.float32(series).view(np.int32) + (np.int32(whole) << np.int32(23))
    return np.int32(bits).view(np.float32)


def _llvm(name: str) -> Callable[..., Any]:
    """An emitter of LLVM's function of this name, of numbers of one type.

    LLVM runs loops over these in vector lanes, unlike ones over Python's `max` and `round`.
    """

    def emit(_context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Any) -> ir.Value:
        number = arguments[0].type
        of_numbers = ir.FunctionType(number, [number] * len(arguments))
        return builder.call(builder.module.declare_intrinsic(f"llvm.{name}", [number], of_numbers), arguments)

    return emit


@intrinsic
def larger(_: Any, one: Any, _other: Any) -> tuple[Any, Any]:
    """The larger of two numbers."""
    return one(one, one), _llvm("maxnum")


@intrinsic
def nearest(_: Any, number: Any) -> tuple[Any, Any]:
    """The nearest whole number."""
    return number(number), _llvm("rint")


SIMD = {"reassoc", "contract", "nnan", "nsz"}
"""Sums in the order of the vector lanes, products and sums in one step."""
PADDING = 64
"""Loops run over whole vectors of keys; those that fill them up have a score of −∞ and finite terms."""
FAR = 60
"""Powers of two up to this can be summed; if a score is larger, the row is summed again, relative to its top score."""


PANELS = 10
"""Panels of queries scored at once: four terms of 60 × 1,024 numbers, 1 MB."""


@compiled(error_model="numpy")
def pack_rows(table: np.ndarray, rows: np.ndarray, divisors: np.ndarray, unit: float, panels: np.ndarray) -> None:
    """Write rows of a table, each over its divisor and times `unit`, into panels [panel, dimension, row] of zeros."""
    dimensions, width = np.uint64(panels.shape[1]), np.uint64(panels.shape[2])
    flat, vector = panels.reshape(-1), np.empty(panels.shape[1], panels.dtype)
    for place in range(np.uint64(len(rows))):
        row, divisor = np.uint64(rows[place]), divisors[place]
        for dimension in range(dimensions):
            vector[dimension] = table[row, dimension] / divisor * unit
        first = place // width * dimensions * width + place % width
        for dimension in range(dimensions):
            flat[first + dimension * width] = vector[dimension]


@compiled(fastmath=SIMD, error_model="numpy")
def term_divergences(
    queries: np.ndarray,
    keys: np.ndarray,
    key_scores: np.ndarray,
    slope: float,
    positions: np.ndarray,
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

    Queries and keys are panels [factor, panel, dimension, row or key]: each query factor makes a term with each key
    factor. They are followed by the term −slope · (position − key), if `order` has one more, and by `key_scores`
    [other, key], the terms of the key alone. `order` says which of them, one after the other, is which term. `groups`
    [group, term] says which terms are removed at once; they follow the single terms. Row r sees the keys from begins[r]
    to before ends[r], which don't decrease. All scores are in units of ln 2, and so is `cap`, at which a model bends
    them (0: it does not).

    All terms are in one array, because a slice, or an array passed to a function, would be counted as a reference.
    """
    n_factors, dimensions, width = len(queries), keys.shape[2], keys.shape[3]
    n_products, n_terms, n_removed = n_factors * len(keys), len(order), len(order) + len(groups)
    n_pairs, columns = n_terms - len(key_scores), key_scores.shape[1] + PADDING
    at_once = min(PANELS, queries.shape[1]) * QUERIES
    sums = (n_pairs * at_once + len(key_scores)) * columns
    flat, at = np.zeros(sums + n_removed * columns, keys.dtype), np.empty(n_removed, np.uint64)
    scores, whole = np.empty(columns, flat.dtype), np.empty(columns, flat.dtype)
    flat_queries, flat_keys = queries.reshape(-1), keys.reshape(-1)
    for other in range(len(key_scores)):
        for key in range(key_scores.shape[1]):
            flat[(n_pairs * at_once + other) * columns + key] = key_scores[other, key]
    for row in range(len(begins)):
        place_in_block = row % at_once
        if place_in_block == 0:
            last = min(row + at_once, len(begins)) - 1
            for pair in range(n_products):
                for key_panel in range(-(-ends[last] // width)):
                    for panel in range(row // QUERIES, last // QUERIES + 1):
                        if key_panel * width >= ends[min(panel * QUERIES + QUERIES - 1, last)]:
                            continue
                        fill_tile(
                            flat_queries,
                            (pair % n_factors * queries.shape[1] + panel) * dimensions * QUERIES,
                            flat_keys,
                            (pair // n_factors * keys.shape[1] + key_panel) * dimensions * width,
                            dimensions,
                            flat,
                            (pair * at_once + panel * QUERIES - row) * columns + key_panel * width,
                            columns,
                        )
            if n_products < n_pairs:
                for query in range(row, last + 1):
                    first = (n_products * at_once + query - row) * columns
                    for key in range(ends[last]):
                        flat[first + key] = slope * (key - positions[query])
        begin, n_keys = begins[row], ends[row] - begins[row]
        if n_keys == 1:  # All attention is on the one key, regardless of its score; rounding would leave 1e-9.
            divergence[row, :] = 0.0
            top_changed[row, :] = False
            continue
        padded = np.uint64(-(-n_keys // PADDING) * PADDING)
        for key in range(padded):
            scores[key] = 0
        for place in range(n_terms):
            which = order[place]
            own_row = which * at_once + place_in_block if which < n_pairs else n_pairs * (at_once - 1) + which
            first = at[place] = np.uint64(own_row * columns + begin)
            for key in range(padded):
                scores[key] += flat[first + key]
        for group in range(len(groups)):
            own = at[n_terms + group] = np.uint64(sums + (n_terms + group) * columns)
            for key in range(padded):
                flat[own + key] = 0
            for place in range(n_terms):
                if groups[group, place]:
                    first = at[place]
                    for key in range(padded):
                        flat[own + key] += flat[first + key]
        if cap > 0:
            for key in range(padded):
                whole[key] = cap * math.tanh(scores[key] / cap)
            for place in range(n_removed):
                first, own = at[place], np.uint64(sums + place * columns)
                for key in range(padded):
                    flat[own + key] = whole[key] - cap * math.tanh((scores[key] - flat[first + key]) / cap)
                at[place] = own
            for key in range(padded):
                scores[key] = whole[key]
        for key in range(np.uint64(n_keys), padded):
            scores[key] = -np.inf
        top = scores[0]
        for key in range(padded):
            top = larger(top, scores[key])
        total = scores[0] - scores[0]
        for key in range(padded):
            whole[key] = exp2(scores[key] - top)
            total += whole[key]
        log_sum, whole_total = top + math.log2(np.float64(total)), np.float64(total)
        top_key = unseen = np.int32(n_keys)
        for key in range(unseen):
            top_key = min(top_key, np.int32(key) if scores[key] == top else unseen)
        for place in range(n_removed):
            first = at[place]
            own_score = scores[top_key] - flat[first + np.uint64(top_key)]
            top_without = own_score
            for _ in range(2):
                reference = top_without
                total = product = own_score - own_score
                for key in range(padded):
                    term = flat[first + key]
                    score = scores[key] - term
                    top_without = larger(top_without, score)
                    weight = exp2(score - reference)
                    total += weight
                    if removed_first:
                        product += weight * term
                    else:
                        product += whole[key] * term
                if top_without - reference <= FAR:
                    break
            shift = reference + math.log2(np.float64(total)) - log_sum
            bits = -np.float64(product) / total - shift if removed_first else np.float64(product) / whole_total + shift
            # Rounding can leave a divergence of nothing a hair below 0.
            divergence[row, place] = max(bits * math.log(2.0), 0.0)
            top_changed[row, place] = own_score < top_without

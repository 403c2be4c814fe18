"""Compiled loops over rows of scores: how far does each row's softmax move when one term is taken away?

With a the whole score of a row in units of ln 2, t one term and a′ = a − t, the distributions are Q = 2^a / 2^ℓ and
P = 2^a′ / 2^ℓ′, where ℓ = log₂ Σ 2^a. The logarithms of P and Q differ by a straight −t − ℓ′ + ℓ, so that

    D(P‖Q) = ln 2 · ( −E_P[t] − ℓ′ + ℓ )        D(Q‖P) = ln 2 · ( E_Q[t] + ℓ′ − ℓ )

and a row needs one exponential for each key and term, and no logarithm of a probability.
"""

import math

import numpy as np

from detoklens.kernels.compiling import compiled
from detoklens.kernels.exp2 import exp2

SIMD = {"reassoc", "contract", "nnan", "nsz"}
"""Sums in the order of the vector lanes, products and sums in one step.

Helpers with this are inlined: a helper compiled once by itself and once more inside its caller may add in two orders,
and which of the two runs would depend on whether the code was just compiled or comes from numba's cache.
"""
TERMS = ("ee", "pp", "pe", "ep", "e", "p")
"""The order of terms in the results of `term_divergences`."""


@compiled(fastmath=SIMD)
def term_divergences(
    pair_scores: np.ndarray,
    key_scores: np.ndarray,
    n_keys: np.ndarray,
    removed_first: bool,
    divergence: np.ndarray,
    top_changed: np.ndarray,
) -> None:
    """Write D(P‖Q) (or, not `removed_first`, D(Q‖P)) and whether the top key changes for each [row, term].

    pair_scores [query factor, key factor, row, key] holds ee, ep, pe and pp, its factors being token and position;
    key_scores [key factor, key] holds e and p. Row r sees its first n_keys[r] keys; all scores are in units of ln 2.
    """
    scores = np.empty(pair_scores.shape[3], pair_scores.dtype)
    whole = np.empty(pair_scores.shape[3], pair_scores.dtype)
    for row in range(len(n_keys)):
        keys = n_keys[row]
        if keys == 1:  # All attention is on the one key, whatever its score; rounding would leave 1e-9.
            divergence[row, :] = 0.0
            top_changed[row, :] = False
            continue
        ee, ep = pair_scores[0, 0, row, :keys], pair_scores[0, 1, row, :keys]
        pe, pp = pair_scores[1, 0, row, :keys], pair_scores[1, 1, row, :keys]
        e, p = key_scores[0, :keys], key_scores[1, :keys]
        top = _add_up(ee, pp, pe, ep, e, p, scores)
        log_sum = _softmax_weights(scores[:keys], top, whole)
        top_key = _first_equal(scores[:keys], top)
        for place, term in enumerate((ee, pp, pe, ep, e, p)):
            found = _divergence(scores[:keys], whole[:keys], term, log_sum, removed_first)
            divergence[row, place] = found[0]
            top_changed[row, place] = scores[top_key] - term[top_key] < found[1]


@compiled(inline="always", fastmath=SIMD)
def _add_up(
    ee: np.ndarray,
    pp: np.ndarray,
    pe: np.ndarray,
    ep: np.ndarray,
    e: np.ndarray,
    p: np.ndarray,
    scores: np.ndarray,
) -> float:
    """Write the whole score of each key; the largest is returned."""
    top = ee[0] + pp[0] + pe[0] + ep[0] + e[0] + p[0]
    for key in range(len(ee)):
        score = ee[key] + pp[key] + pe[key] + ep[key] + e[key] + p[key]
        scores[key] = score
        top = max(top, score)
    return top


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

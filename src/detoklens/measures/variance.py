"""Anomalies of positions: variance outliers, the switch at position 0, the last query position.

**Outliers** have a variance v that differs from that of their neighbours, by a robust rule:

    d_j         = log v_j − median of log v over the ten nearest other positions
    deviation_j = 0.6745 · d_j / MAD,     MAD = median over all positions of |d_j|

The factor 0.6745 turns deviations of a normal distribution into standard deviations. A position is an outlier if its
deviation is beyond ±5 *and* its variance differs from its neighbours' by more than a quarter. It is compared with its
neighbours because variances drift along a position table; the quarter keeps tiny differences in a table of nearly equal
variances from counting.

**The switch**: how much of position 0's jump in Tᵖ comes from LayerNorm? With c_j = q_b · K_p[j], the score before the
division, g_j = 1/σ_j, and N the next ten positions:

    jump     = c_0 g_0 − mean over j in N of c_j g_j
    by_scale = mean over j in N of (g_0 − g_j) (c_0 + c_j) / 2
    by_score = mean over j in N of (c_0 − c_j) (g_0 + g_j) / 2

The last two add up to the jump exactly and treat c and g alike: they average changing g first and changing c first. A
large σ_0 pulls a negative c_0 towards zero, so by_scale > 0 and attention to the first token rises.

**The last position**: is it undertrained? With r_i the row Tᵖᵖ[h, i, ·] without σ at the last five query positions,
over the keys visible to all five:

    departure of the last = ‖r_last − m‖ / ‖m‖,     m = mean of the other four rows
    usual departure       = the largest of ‖r_i − m_i‖ / ‖m_i‖,  m_i = mean of the four without r_i

The last position counts as undertrained if the others agree (their usual departure is at most 0.5) and its own is at
least 0.5 (a row of zeros has 1) and at least three times the usual one. In a random table every row departs. If the
rows before it are untrained, too (see `trained_range`), there is nothing to compare with, and the test is undefined.

**Value norms**: how long is the value vector at position 0, v(t, 0) = (e_t + p_0) W̃_V / σ + b̃_V, against the others?
The mean norm over the vocabulary, at position 0 and at the next ten positions. A sink whose value vectors are short
adds little to the output.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from jaxtyping import Bool, Float

from detoklens.measures.positions import PositionScores
from detoklens.scores.factors import project
from detoklens.scores.layer import Layer

NORMAL_MAD = 0.6745
FAR_DEVIATION = 5.0
NOTABLE_RATIO = 1.25
NEIGHBOURS = 10
NEXT_POSITIONS = 10
LAST = 5
NEAR_DEPARTURE = FAR_DEPARTURE = 0.5
TIMES_THE_USUAL = 3.0
TOKEN_BLOCK = 4096

PerHead = Float[np.ndarray, "head"]
HeadKey = Float[np.ndarray, "head key"]


def deviations(variances: Float[np.ndarray, "position"]) -> Float[np.ndarray, "position"]:
    """Each position's deviation from its neighbours; all NaN if at least half of them do not differ."""
    difference = _difference_from_neighbours(variances)
    spread = float(np.median(np.abs(difference)))
    return NORMAL_MAD * difference / spread if spread else np.full(len(variances), np.nan)


def outliers(variances: Float[np.ndarray, "position"]) -> Bool[np.ndarray, "position"]:
    """The outliers; if deviations are undefined, the ratio to the neighbours alone decides."""
    notable = np.abs(_difference_from_neighbours(variances)) > math.log(NOTABLE_RATIO)
    deviation = deviations(variances)
    return notable & (np.isnan(deviation) | (np.abs(deviation) > FAR_DEVIATION))


def _difference_from_neighbours(variances: Float[np.ndarray, "position"]) -> Float[np.ndarray, "position"]:
    # An untrained row of zeros gets the smallest variance that a float can hold.
    logs = np.log(np.maximum(variances.astype(np.float64), np.finfo(np.float64).tiny))
    if len(logs) == 1:
        return np.zeros(1)
    window = min(NEIGHBOURS + 1, len(logs))
    begins = np.clip(np.arange(len(logs)) - NEIGHBOURS // 2, 0, len(logs) - window)
    nearby = [np.delete(logs[begin : begin + window], place - begin) for place, begin in enumerate(begins)]
    return logs - np.median(nearby, axis=1)


def switch(scores: PositionScores) -> dict[str, PerHead]:
    """LayerNorm's part of position 0's jump in Tᵖ, as columns; NaN with only one position."""

    def mean(values: HeadKey) -> PerHead:
        return values.mean(axis=1) if values.shape[1] else np.full(len(values), np.nan)

    nearby = scores.self_assertion[:, : NEXT_POSITIONS + 1]
    first, following = nearby[:, 0], nearby[:, 1:]
    first_inverse, inverses = scores.inverse[0], scores.inverse[1 : NEXT_POSITIONS + 1]
    by_scale = mean((first_inverse - inverses) * (first[:, None] + following) / 2)
    by_score = mean((first[:, None] - following) * (first_inverse + inverses) / 2)
    jump = by_scale + by_score
    return {
        "first_without_norm": first,
        "next_without_norm": mean(following),
        "first": first * first_inverse,
        "next": mean(following * inverses),
        "jump_without_norm": first - mean(following),
        "jump": jump,
        "by_scale": by_scale,
        "by_score": by_score,
        "scale_share": np.divide(by_scale, jump, out=np.full_like(jump, np.nan), where=jump != 0),
    }


def last_rows(scores: PositionScores) -> dict[int, HeadKey]:
    """Tᵖᵖ without LayerNorm at each of the last five query positions, over its visible keys without any window."""
    n_positions = scores.query.shape[1]
    ends = {query: query + 1 if scores.layer.is_causal else n_positions for query in range(n_positions)[-LAST:]}
    return {query: scores.comparison(query, slice(end)) for query, end in ends.items()}


def departure_of_last(rows_by_query: Mapping[int, HeadKey]) -> dict[str, PerHead]:
    """The departure of the last query position and the usual one before it, as columns; NaN with too few rows."""

    def size(row: HeadKey) -> PerHead:
        return np.sqrt(np.square(row).mean(axis=1))

    def departure(row: HeadKey, others: Float[np.ndarray, "head query key"]) -> PerHead:
        """‖row − mean of the others‖ / ‖that mean‖; NaN without others or if their mean is zero."""
        if not others.shape[1]:
            return np.full(len(row), np.nan)
        mean = others.mean(axis=1)
        usual = size(mean)
        return np.divide(size(row - mean), usual, out=np.full_like(usual, np.nan), where=usual > 0)

    seen = min(row.shape[1] for row in rows_by_query.values())
    rows = np.stack([row[:, :seen] for row in rows_by_query.values()], axis=1)
    before, last, undefined = rows[:, :-1], rows[:, -1], np.full(len(rows), np.nan)
    others = [departure(before[:, place], np.delete(before, place, axis=1)) for place in range(before.shape[1])]
    return {
        "size": size(last),
        "usual_size": size(before.mean(axis=1)) if others else undefined,
        "departure": departure(last, before),
        "usual_departure": np.max(others, axis=0) if others else undefined,
    }


def undertrained(departure: PerHead, usual: PerHead) -> list[bool | None]:
    """Whether the last position departs as if undertrained; None if undefined."""
    far = departure >= np.maximum(FAR_DEPARTURE, TIMES_THE_USUAL * usual)
    found = far & (usual <= NEAR_DEPARTURE)
    return [None if np.isnan(one) else bool(is_so) for is_so, one in zip(found, departure + usual, strict=True)]


def value_norms(layer: Layer) -> Float[np.ndarray, "head position"]:
    """Mean norm over the vocabulary of the value vectors at position 0 and the next ten positions.

    With a of the token, b of the position and c the bias, ‖v‖² = ‖a + b‖² / σ² + 2 (a + b)·c / σ + ‖c‖².
    """
    weight, c = layer.folded.value_weight.astype(np.float64), layer.folded.value_bias.astype(np.float64)
    b = project(layer.weights.position_embeddings[: NEXT_POSITIONS + 1].astype(np.float64), weight)
    inverses = 1 / layer.scales.of_positions(slice(0, b.shape[1])).astype(np.float64)
    total = np.zeros(b.shape[:2])
    for begin in range(0, layer.vocab_size, TOKEN_BLOCK):
        tokens = slice(begin, begin + TOKEN_BLOCK)
        a = project(layer.weights.token_embeddings[tokens], layer.folded.value_weight).astype(np.float64)
        inverse = inverses[:, tokens]
        for head in range(len(weight)):
            squares = np.square(b[head]).sum(axis=1)[:, None] + np.square(a[head]).sum(axis=1)
            product = (b[head] @ c[head])[:, None] + a[head] @ c[head]
            norms = (squares + 2 * b[head] @ a[head].T) * inverse**2 + 2 * product * inverse + c[head] @ c[head]
            total[head] += np.sqrt(np.maximum(norms, 0)).sum(axis=1)
    return np.repeat(total / layer.vocab_size, layer.weights.heads_per_key, axis=0)

"""Shape of the position terms: a line through Tᵖ, waves of Tᵖᵖ, and attention by position alone.

1. Line: least squares through Tᵖ over the trained positions, without the outliers of `variance`.
2. Waves: Tᵖᵖ at a query position i along the keys 0 … i, without the same positions (see `trained_range`).
3. Attention by position alone: softmax of Tᵖ + Tᵖᵖ over all keys 0 … i; its mass, entropy and class.
4. Wave effect: total variation between that attention and the one without the fitted waves, if at least 1.5 periods of
   the leading one are in view. The paper finds the wave "almost entirely suppressed" by the softmax: 0.
5. Reach: the near mass from every query position, and the mass on position 0, the attention sink, also with its σ
   replaced by the mean of the next ten positions (their mean 1/σ).

The class of a row of attention, over keys 0 to i for a query at i, is the first rule that holds:

| class          | rule                                                                                        |
|----------------|---------------------------------------------------------------------------------------------|
| self           | at least half of the mass on the query itself                                               |
| previous token | at least half on the token before it                                                        |
| next token     | at least half on the token after it, in bidirectional models                                |
| first          | at least half on position 0                                                                 |
| local          | at least half on the last 15 tokens, or on the last quarter of the keys if that is fewer    |
| broad          | none of these                                                                               |

σ is averaged over the vocabulary throughout. For bidirectional models, the keys equally near after the query also count
as local. With rotary and ALiBi positions, line and waves are those of the kernel (see `OffsetScores`) along the keys.

A line or wave must exceed a control, corrected for the number of heads (see `chance`):

- Learned positions: random walks. Neighbouring rows of a trained table are similar, so any curve over them drifts. A
  drift alone has R² ≥ 0.9 in 4 % of cases, and half of its power in one wave in 25 %.
- Rotary positions: kernels of random mean vectors. Each kernel is a sum of the model's few frequencies, so one wave
  often dominates for any mean query and key.
- ALiBi: none. Its kernel is a line by construction.

Waves are found by least squares at every frequency, the strongest first. At each frequency f of a grid the curve y is
fitted by

    y_j ≈ a + b j + c cos 2πfj + d sin 2πfj

and the power at f is the amount by which c and d reduce the squared residuals of the line a + b j. This is the
Lomb-Scargle periodogram with a line instead of the mean: it needs neither evenly spaced keys nor a whole number of
periods. The leading wave is subtracted and the search repeated on the residual; shares of the power around the line add
up. The grid runs from one period in view to two positions per period, in steps of a quarter of the resolution 1/n; the
best frequency is then refined between its neighbours by golden section.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import minimize_scalar
from scipy.stats import rankdata

from detoklens.measures.chance import ALPHA, draws_for, holm, tail_probability
from detoklens.measures.positions import (
    Average,
    OffsetScores,
    PositionScores,
    summarise_scales,
    trained_length,
    trained_range,
)
from detoklens.measures.variance import NEXT_POSITIONS, outliers
from detoklens.progress import Watcher, unwatched
from detoklens.scores.factors import Mean, rotated_by_offset
from detoklens.scores.layer import Layer

OVERSAMPLING = 4
LEADING = 3
SINUSOIDAL_SHARE = 0.5
# With fewer keys, one wave explains half of a random curve too often; with 48 keys, once in 100,000.
FEWEST_KEYS = 48
PERIODS_IN_VIEW = 1.5  # a bend can look like one period of a wave, but not like one and a half
BLOCK_BYTES = 8 << 20
LINEAR_R_SQUARED = 0.9
# A random curve of 16 points has an R² of 0.9 once in 100 million; of 4 points, once in 20.
FEWEST_POINTS = 16
ROUNDING = 1e-12  # variation below this share of a curve's size is rounding error
NEAR = (1, 5, 15)  # numbers of last keys whose mass is reported
MOST = 0.5
LONGEST_WALK = 128  # random walks are self-similar: longer ones only take longer

PerHead = Float[np.ndarray, "head"]
HeadKey = Float[np.ndarray, "head key"]
Places = Int[np.ndarray, "key"]
Draws = Float[np.ndarray, "draw point"]


@dataclass(frozen=True)
class Wave:
    """One wave of a curve; `share` is its share of the power around the best line."""

    frequency: float
    amplitude: float
    share: float

    @property
    def period(self) -> float:
        return 1 / self.frequency


@dataclass(frozen=True)
class ControlTest:
    """The control's 95th percentile, and each head's Holm-adjusted p; heads whose statistic is NaN are not tested."""

    null_high: float
    p: PerHead

    @classmethod
    def of(cls, observed: PerHead, null: Float[np.ndarray, "draw"]) -> ControlTest:
        p = [np.nan if np.isnan(value) else tail_probability(value, null) for value in observed]
        return cls(float(np.quantile(null, 0.95)), holm(np.array(p)))


@dataclass(frozen=True)
class Line:
    """The best line of each head, compared with the control if there is one; R² is NaN for a constant curve."""

    slope: PerHead
    r_squared: PerHead
    n_points: int
    beyond: ControlTest | None = None

    def linear(self) -> list[bool | None]:
        """Whether each curve is a line beyond its control; None if constant or with too few points."""
        if self.n_points < FEWEST_POINTS:
            return [None] * len(self.slope)
        is_line = self.r_squared >= LINEAR_R_SQUARED
        if self.beyond is not None:
            is_line &= self.beyond.p <= ALPHA
        return [None if np.isnan(value) else bool(is_line[head]) for head, value in enumerate(self.r_squared)]


@dataclass(frozen=True)
class SeenFrom:
    """Each head from one query position: the leading waves of Tᵖᵖ, and the softmax of Tᵖ + Tᵖᵖ."""

    query_position: int
    waves: list[list[Wave]]
    beyond: ControlTest | None
    """Comparison of the leading waves' shares with the control; None without a control."""
    n_keys: int
    """Number of keys the waves are fitted to."""
    attention: HeadKey
    first_key: int
    """Position of the first visible key."""
    wave_effect: PerHead
    """Total variation between this attention and the one without the fitted waves; NaN with fewer than 1.5 periods in
    view, where a wave and a line can't be told apart."""

    @property
    def sinusoidal(self) -> list[bool | None]:
        """Whether each head's curve is a wave beyond its control; None if untestable."""
        found = [is_sinusoidal(waves, self.n_keys) for waves in self.waves]
        if self.beyond is None:
            return found
        return [is_wave and bool(p <= ALPHA) for is_wave, p in zip(found, self.beyond.p, strict=True)]


@dataclass(frozen=True)
class PositionShape:
    """The line through Tᵖ, its slope in ALiBi's units, its monotonicity, and the results from query positions."""

    line: Line
    alibi_slope: PerHead
    monotone: PerHead
    """Spearman's correlation of Tᵖ with the key position; NaN for a constant curve."""
    increasing: PerHead
    """The share of steps from one key to the next at which Tᵖ increases; NaN with one key."""
    queries: list[SeenFrom]
    reach: Mapping[str, Float[np.ndarray, "head query"]]
    """Near mass and mass on position 0, by column of the table, from every query position."""


def position_shape(
    layer: Layer,
    query_positions: Sequence[int],
    average: Average = "ratio-of-mean",
    token_weights: Float[np.ndarray, "token"] | None = None,
    watch: Watcher = unwatched,
    mean: Mean = "vocabulary",
    n_keys: int | None = None,
    seed: int = 0,
) -> PositionShape:
    """Line, waves and attention by position alone, from each query position.

    Rotary and ALiBi positions have one curve, the kernel, which depends on `mean`; its line is fitted along the keys of
    the last query. The seed draws the controls.
    """
    random, last = np.random.default_rng(seed), max(query_positions)
    scores: PositionScores | OffsetScores
    kernels = None
    if layer.positions == "learned":
        inverse = summarise_scales(layer.scales, token_weights, watch=watch).inverse(average)
        scores, trained = PositionScores.of(layer, inverse, n_keys), trained_range(layer).trained
        places = fitted = np.flatnonzero(~outliers(layer.scales.position_variance[:trained]))
        curve = (scores.self_assertion * inverse)[:, places]
        reach = sink_and_reach(scores, min(trained, scores.n_keys))
    else:
        scores = OffsetScores.of(layer, last + 1 if layer.is_causal else trained_length(layer), mean)
        places, curve = np.arange(scores.n_keys), scores.along(last)
        fitted = places[scores.seen(last)]
        reach = kernel_reach(OffsetScores.of(layer, trained_length(layer), mean))
        kernels = _random_kernels(layer, scores, random) if layer.positions == "rotary" else None

    def control(query: int, n_points: int) -> Draws | None:
        if layer.positions == "learned":
            return random.normal(size=(draws_for(layer.n_heads), min(n_points, LONGEST_WALK))).cumsum(axis=1)
        return None if kernels is None else kernels.along(query)

    line, draws = best_line(curve, fitted), control(last, len(fitted))
    if draws is not None and line.n_points >= FEWEST_POINTS:
        null = best_line(draws, np.arange(draws.shape[1])).r_squared
        line = replace(line, beyond=ControlTest.of(line.r_squared, null))
    queries = []
    for query in query_positions:
        seen, total = scores.seen(query), scores.along(query)
        keys = places[(places >= seen.start) & (places < seen.stop)]
        waving = total
        if isinstance(scores, PositionScores):
            waving = scores.comparison(query) * scores.inverse[query] * scores.inverse[seen]
        waving = waving[:, keys - seen.start]
        waves, part = leading_waves(waving, keys)
        attention, smooth = scores.softmax(total), total.copy()
        smooth[:, keys - seen.start] -= part
        effect = np.abs(scores.softmax(smooth) - attention).sum(axis=1) / 2
        effect[[not is_in_view(of_head, len(keys)) for of_head in waves]] = np.nan
        beyond, draws = None, control(query, len(keys))
        if draws is not None and len(keys) >= FEWEST_KEYS:
            beyond = ControlTest.of(shares_in_view(waving, keys), shares_in_view(draws, np.arange(draws.shape[1])))
        queries.append(SeenFrom(query, waves, beyond, len(keys), attention, seen.start, effect))
    return PositionShape(line, line.slope * layer.attention_scale, *monotonicity(curve), queries=queries, reach=reach)


def _random_kernels(layer: Layer, scores: OffsetScores, random: np.random.Generator) -> OffsetScores:
    """The kernels of mean queries and keys of random direction, as random weights would give."""
    queries, keys = random.normal(size=(2, draws_for(layer.n_heads), layer.d_head))
    offsets = range(scores.first_offset, scores.first_offset + scores.kernel.shape[1])
    turned = [np.einsum("rd,rd->r", rotated_by_offset(layer.weights, queries, offset), keys) for offset in offsets]
    return replace(scores, kernel=np.stack(turned, axis=1))


def _varies(curves: HeadKey) -> Bool[np.ndarray, "head"]:
    """Whether a curve differs from a constant by more than rounding."""
    return np.ptp(curves, axis=1) > ROUNDING * np.abs(curves).max(axis=1)


def best_line(curves: HeadKey, places: Places) -> Line:
    """slope = Cov(place, value) / Var(place), R² = 1 − Var(value − line) / Var(value)."""
    if len(places) < 2:
        return Line(np.zeros(len(curves)), np.full(len(curves), np.nan), len(places))
    x = places - places.mean()
    y = curves - curves.mean(axis=1, keepdims=True)
    slope = y @ x / (x @ x)
    left = np.square(y - slope[:, None] * x).sum(axis=1)
    varies, total = _varies(curves), np.square(y).sum(axis=1)
    r_squared = np.where(varies, 1 - left / np.where(varies, total, 1), np.nan)
    return Line(np.where(varies, slope, 0.0), r_squared, len(places))


def monotonicity(curves: HeadKey) -> tuple[PerHead, PerHead]:
    """Spearman's correlation of each curve with the key position, and its share of increasing steps."""
    if curves.shape[1] < 2:
        return np.full(len(curves), np.nan), np.full(len(curves), np.nan)
    ranks, places = rankdata(curves, axis=1), np.arange(curves.shape[1])
    found = [
        np.corrcoef(row, places)[0, 1] if varies else np.nan for row, varies in zip(ranks, _varies(curves), strict=True)
    ]
    return np.array(found), (np.diff(curves, axis=1) > 0).mean(axis=1)


def sink_and_reach(scores: PositionScores, n_queries: int) -> dict[str, Float[np.ndarray, "head query"]]:
    """Near mass and mass on position 0 from the first `n_queries` positions.

    `on_first_usual_scale` is the mass on position 0 if its 1/σ were the mean of the next ten positions: what the sink
    would be without its exceptional variance.
    """
    usual = scores.inverse.copy()
    usual[0] = usual[1 : NEXT_POSITIONS + 1].mean() if len(usual) > 1 else usual[0]
    rows = []
    for query, undivided in scores.undivided_rows(range(n_queries)):
        seen = scores.seen(query)
        attention, without = (scores.softmax(undivided * factor[seen]) for factor in (scores.inverse, usual))
        first = {"on_first_usual_scale": mass(without, -seen.start, 1 - seen.start)}
        rows.append(reach_of(attention, query - seen.start, seen.start) | first)
    return {name: np.stack([row[name] for row in rows], axis=1) for name in rows[0]}


def kernel_reach(scores: OffsetScores) -> dict[str, Float[np.ndarray, "head query"]]:
    """The same for rotary and ALiBi positions, where no σ depends on the position."""
    seen = [scores.seen(query) for query in range(scores.n_keys)]
    rows = [reach_of(scores.attention(query), query - keys.start, keys.start) for query, keys in enumerate(seen)]
    return {name: np.stack([row[name] for row in rows], axis=1) for name in rows[0]}


def reach_of(attention: HeadKey, place: int, first_key: int) -> dict[str, PerHead]:
    """Attention on the last keys up to the query, whose index is `place`, and on position 0, by column."""
    last = {f"last_{count}": mass(attention, place + 1 - count, place + 1) for count in NEAR}
    return last | {"on_first": mass(attention, -first_key, 1 - first_key)}


def masses(seen: SeenFrom) -> dict[str, PerHead | list[str]]:
    """Mass on near keys and position 0, entropy and class of attention from one query position, by column."""
    attention, place = seen.attention, seen.query_position - seen.first_key
    return {
        **reach_of(attention, place, seen.first_key),
        **{f"next_{count}": mass(attention, place + 1, place + 1 + count) for count in NEAR},
        "on_previous": mass(attention, place - 1, place) if place > 0 else np.full(len(attention), np.nan),
        "entropy": entropy(attention),
        "class": classes(attention, place, seen.first_key),
    }


def mass(attention: HeadKey, begin: int, end: int) -> PerHead:
    """Attention on the keys from `begin` to before `end`, as far as they are visible."""
    return attention[:, max(0, begin) : max(0, end)].sum(axis=1)


def entropy(attention: HeadKey) -> PerHead:
    """−Σ α log2 α, in bits; a key without attention adds nothing."""
    bits = -np.log2(attention, out=np.zeros_like(attention), where=attention > 0)
    return np.einsum("hj,hj->h", attention, bits)


def classes(attention: HeadKey, place: int | None = None, first_key: int = 0) -> list[str]:
    """The class of each head, by the rules at the top of the module; the query is the last key by default."""
    at = attention.shape[1] - 1 if place is None else place
    nearby = min(NEAR[-1], max(1, attention.shape[1] // 4))
    rules = {
        "self": mass(attention, at, at + 1),
        "previous token": mass(attention, at - 1, at),
        "next token": mass(attention, at + 1, at + 2),
        "first": mass(attention, -first_key, 1 - first_key),
        "local": mass(attention, at + 1 - nearby, at + nearby),
    }
    return [next((name for name in rules if rules[name][head] >= MOST), "broad") for head in range(len(attention))]


def leading_waves(
    curves: Float[np.ndarray, "head key"], places: Int[np.ndarray, "key"], count: int = LEADING
) -> tuple[list[list[Wave]], Float[np.ndarray, "head key"]]:
    """The strongest waves of each curve, and their sum along the keys.

    Fewer waves if only rounding errors remain, none with fewer than six keys.
    """
    grid = _grid(len(places))
    if not len(grid):
        return [[] for _ in curves], np.zeros_like(curves)
    basis = _Basis(places)
    around_line = basis.without_line(curves)
    left, found = around_line.copy(), [list[Wave]() for _ in curves]
    powers, rounding = np.square(left).sum(axis=1), ROUNDING * np.abs(curves).max(axis=1)
    for _ in range(count):
        best = _best_of_grid(left, basis, grid)
        for head in np.flatnonzero(np.abs(left).max(axis=1) > rounding):
            frequency = _refined(left[head], basis, grid, int(best[head]))
            wave = basis.fitted(frequency, left[head])
            left[head] -= wave
            found[head].append(Wave(frequency, basis.amplitude(frequency, wave), float(wave @ wave / powers[head])))
    return found, around_line - left


def is_sinusoidal(waves: list[Wave], n_keys: int) -> bool | None:
    """Whether the leading wave has half of the power; None without a wave, enough keys or enough periods."""
    if not waves or n_keys < FEWEST_KEYS:
        return None
    if waves[0].share < SINUSOIDAL_SHARE:
        return False
    return True if is_in_view(waves, n_keys) else None


def is_in_view(waves: list[Wave], n_keys: int) -> bool:
    """Whether the keys hold enough periods of the leading wave to tell it from a bend."""
    return bool(waves) and waves[0].period * PERIODS_IN_VIEW <= n_keys


def shares_in_view(
    curves: Float[np.ndarray, "curve key"], places: Int[np.ndarray, "key"]
) -> Float[np.ndarray, "curve"]:
    """The share of the grid's best frequency, unrefined; 0 with fewer than 1.5 of its periods in view.

    A cheap statistic for comparing curves with their control.
    """
    grid = _grid(len(places))
    if not len(grid):
        return np.zeros(len(curves))
    basis = _Basis(places)
    left = basis.without_line(curves)
    best = _best_of_grid(left, basis, grid)
    pairs = basis.waves(grid[best])
    power, total = np.square(np.einsum("cbj,cj->cb", pairs, left)).sum(axis=1), np.square(left).sum(axis=1)
    varies = np.abs(left).max(axis=1) > ROUNDING * np.abs(curves).max(axis=1)
    shares = np.divide(power, total, out=np.zeros(len(curves)), where=varies)
    return np.where(len(places) * grid[best] >= PERIODS_IN_VIEW, shares, 0.0)


def _grid(n_keys: int) -> Float[np.ndarray, "frequency"]:
    """Frequencies from 1/n to just below 1/2, where the sine vanishes; none with fewer than six keys."""
    if n_keys < 6:
        return np.empty(0)
    return np.arange(OVERSAMPLING, OVERSAMPLING * n_keys // 2) / (OVERSAMPLING * n_keys)


class _Basis:
    """Cosines and sines over given positions, orthogonal to every line."""

    def __init__(self, places: Int[np.ndarray, "key"]) -> None:
        self.places = places - places.mean()
        length = np.sqrt(self.places @ self.places)
        self.line = np.stack([np.full(len(places), len(places) ** -0.5), self.places / length])

    def without_line(self, curves: Float[np.ndarray, "*rows key"]) -> Float[np.ndarray, "*rows key"]:
        return curves - (curves @ self.line.T) @ self.line

    def waves(self, frequencies: Float[np.ndarray, "frequency"]) -> Float[np.ndarray, "frequency both key"]:
        """For each frequency, two orthonormal vectors that span its waves, orthogonal to the line."""
        angles = 2 * np.pi * frequencies[:, None] * self.places
        cosine, sine = self.without_line(np.cos(angles)), self.without_line(np.sin(angles))
        cosine /= np.linalg.norm(cosine, axis=1, keepdims=True)
        sine -= np.einsum("fj,fj->f", sine, cosine)[:, None] * cosine
        sine /= np.linalg.norm(sine, axis=1, keepdims=True)
        return np.stack([cosine, sine], axis=1)

    def fitted(self, frequency: float, curve: Float[np.ndarray, "key"]) -> Float[np.ndarray, "key"]:
        """The least-squares wave of this frequency."""
        pair = self.waves(np.array([frequency]))[0]
        return (pair @ curve) @ pair

    def amplitude(self, frequency: float, wave: Float[np.ndarray, "key"]) -> float:
        """√(c² + d²) of a fitted wave."""
        angles = 2 * np.pi * frequency * self.places
        columns = np.stack([np.cos(angles), np.sin(angles), *self.line], axis=1)
        cosine, sine, *_ = np.linalg.lstsq(columns, wave, rcond=None)[0]
        return float(np.hypot(cosine, sine))


def _best_of_grid(
    left: Float[np.ndarray, "head key"], basis: _Basis, grid: Float[np.ndarray, "frequency"]
) -> Int[np.ndarray, "head"]:
    """For each curve, the grid index of the frequency with the most power, computed in blocks."""
    step = max(1, BLOCK_BYTES // (2 * 8 * left.shape[1]))
    blocks = [
        np.square(basis.waves(grid[begin : begin + step]) @ left.T).sum(axis=1) for begin in range(0, len(grid), step)
    ]
    return np.concatenate(blocks).argmax(axis=0)


def _refined(left: Float[np.ndarray, "key"], basis: _Basis, grid: Float[np.ndarray, "frequency"], best: int) -> float:
    """The frequency with the most power between the neighbours of the best grid frequency."""

    def lost(frequency: float) -> float:
        wave = basis.fitted(frequency, left)
        return -float(wave @ wave)

    bounds = (grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)])
    found = minimize_scalar(lost, bounds=bounds, method="bounded", options={"xatol": grid[0] * 1e-6})
    return float(found.x) if found.fun <= lost(grid[best]) else float(grid[best])

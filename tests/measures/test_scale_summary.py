"""σ over the vocabulary: against vectors that are really built, and quantiles by their definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detoklens.errors import RangeError
from detoklens.measures.positions import summarise_scales
from detoklens.scores.layer import Layer
from detoklens.weights import scale as scale_module
from tests.layers import random_layer, sizes


def plain_scales(layer: Layer) -> np.ndarray:
    both = layer.weights.token_embeddings[None] + layer.weights.position_embeddings[:, None]
    return np.sqrt(both.var(axis=-1) + layer.weights.norm_epsilon)


def plain_quantile(scales: np.ndarray, shares: np.ndarray, level: float) -> np.ndarray:
    """The smallest value with at least `level` of the weight at or below it, row by row."""
    found = []
    for row in scales:
        reached = [shares[row <= value].sum() for value in row]
        found.append(min(value for value, share in zip(row, reached, strict=True) if share >= level - 1e-9))
    return np.array(found)


@given(sizes, st.floats(0.1, 0.99), st.booleans())
def test_summary_is_what_the_definition_says(size: dict, coverage: float, weighted: bool) -> None:
    layer = random_layer(**size)
    random = np.random.default_rng(size["seed"])
    weights = random.integers(0, 4, layer.vocab_size).astype(float) + (np.arange(layer.vocab_size) == 1)
    shares = weights / weights.sum() if weighted else np.full(layer.vocab_size, 1 / layer.vocab_size)
    summary = summarise_scales(layer.scales, weights if weighted else None, coverage)
    scales = plain_scales(layer)
    seen = scales[:, shares > 0]
    np.testing.assert_allclose(summary.mean, scales @ shares, rtol=1e-9)
    np.testing.assert_allclose(summary.mean_inverse, (1 / scales) @ shares, rtol=1e-9)
    np.testing.assert_allclose(summary.smallest, seen.min(axis=1), rtol=1e-9)
    np.testing.assert_allclose(summary.largest, seen.max(axis=1), rtol=1e-9)
    for name, level in (
        ("low", (1 - coverage) / 2),
        ("high", (1 + coverage) / 2),
        ("pair_low", (1 - coverage**0.5) / 2),
        ("pair_high", (1 + coverage**0.5) / 2),
    ):
        np.testing.assert_allclose(getattr(summary, name), plain_quantile(scales, shares, level), rtol=1e-9)


@given(sizes, st.floats(0.1, 0.99))
def test_bands_hold_what_they_promise(size: dict, coverage: float) -> None:
    layer = random_layer(**size)
    summary, scales = summarise_scales(layer.scales, coverage=coverage), plain_scales(layer)
    slack = 1e-9 * scales
    for low, high, share in (
        (summary.low, summary.high, coverage),
        (summary.pair_low, summary.pair_high, coverage**0.5),
    ):
        inside = (scales >= low[:, None] - slack) & (scales <= high[:, None] + slack)
        assert (inside.mean(axis=1) >= share - 1e-9).all()


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, steps = random_layer(n_positions=9), []
    whole = summarise_scales(layer.scales, np.arange(23.0))
    monkeypatch.setattr(scale_module, "BLOCK_BYTES", 2 * 8 * 23)
    parts = summarise_scales(layer.scales, np.arange(23.0), watch=lambda done, total: steps.append((done, total)))
    np.testing.assert_allclose(parts.mean, whole.mean, rtol=1e-12)
    np.testing.assert_allclose(parts.high, whole.high, rtol=1e-12)
    assert steps == [(2, 9), (4, 9), (6, 9), (8, 9), (9, 9)]


@pytest.mark.parametrize("coverage", [0.0, 1.0, -0.5, 95.0, float("nan")])
def test_a_band_is_a_share(coverage: float) -> None:
    with pytest.raises(RangeError, match="between 0 and 1"):
        summarise_scales(random_layer().scales, coverage=coverage)


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        (np.ones(5), "got 5 token weights for 23 tokens"),
        (np.zeros(23), "not all 0"),
        (np.full(23, np.nan), "finite"),
        (np.arange(23.0) - 1, "at least 0"),
    ],
)
def test_weights_that_are_none_are_refused(weights: np.ndarray, said: str) -> None:
    with pytest.raises(RangeError, match=said):
        summarise_scales(random_layer().scales, weights)

"""Position terms against their plain formulas, and what must hold of them whatever the weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detoklens.errors import RangeError
from detoklens.measures.positions import Curve, chosen_queries, position_curves, predicted_attention
from detoklens.scores.layer import Layer
from tests.layers import random_layer, sizes
from tests.measures.test_scale_summary import plain_scales
from tests.measures.test_trained_range import partly_trained

averages = st.sampled_from(["ratio-of-mean", "mean-of-ratio"])


def plain_inverse(layer: Layer, average: str) -> np.ndarray:
    scales = plain_scales(layer)
    return 1 / scales.mean(axis=1) if average == "ratio-of-mean" else (1 / scales).mean(axis=1)


def plain_terms(layer: Layer) -> tuple[np.ndarray, np.ndarray]:
    """Tᵖ [head key] and Tᵖᵖ [head query key] without σ, by centring, gain and projection one after another."""
    weights = layer.weights
    centred = weights.position_embeddings - weights.position_embeddings.mean(axis=1, keepdims=True)
    gained = centred * weights.norm_gain
    query = np.einsum("pd,dhk->hpk", gained, weights.query_weight)
    key = np.einsum("pd,dhk->hpk", gained, weights.key_weight)
    bias = np.einsum("d,dhk->hk", weights.norm_bias, weights.query_weight) + weights.query_bias
    return np.einsum("hk,hjk->hj", bias, key), np.einsum("hik,hjk->hij", query, key)


def curve(curves: Sequence[Curve], quantity: str, query: int | None, layer_norm: bool, column: str) -> np.ndarray:
    """One column as [head, key]."""
    asked = (quantity, query, layer_norm)
    (found,) = [each for each in curves if (each.quantity, each.query_position, each.layer_norm) == asked]
    return getattr(found, column)


@given(sizes, averages)
def test_means_are_the_plain_formulas(size: dict, average: str) -> None:
    layer = random_layer(**size)
    asserted, compared = plain_terms(layer)
    inverse = plain_inverse(layer, average)
    query = layer.n_positions - 1
    curves = position_curves(layer, [query], average=average)
    close = {"rtol": 1e-9, "atol": 1e-9 * np.abs(compared).max()}
    p, pp = asserted * inverse, compared[:, query] * inverse[query] * inverse
    np.testing.assert_allclose(curve(curves, "p", None, False, "mean"), asserted, **close)
    np.testing.assert_allclose(curve(curves, "p", None, True, "mean"), p, **close)
    np.testing.assert_allclose(curve(curves, "pp", query, False, "mean"), compared[:, query], **close)
    np.testing.assert_allclose(curve(curves, "pp", query, True, "mean"), pp, **close)
    np.testing.assert_allclose(curve(curves, "p+pp", query, True, "mean"), p + pp, **close)
    weights = np.exp((p + pp) * layer.attention_scale - ((p + pp) * layer.attention_scale).max(axis=1, keepdims=True))
    attention = weights / weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(curve(curves, "attention", query, True, "mean"), attention, rtol=1e-7, atol=1e-12)


@given(sizes, st.floats(0.2, 0.99))
def test_band_of_p_holds_the_values_of_most_tokens(size: dict, coverage: float) -> None:
    layer = random_layer(**size)
    asserted, _ = plain_terms(layer)
    values = asserted[:, :, None] / plain_scales(layer)
    curves = position_curves(layer, [0], coverage=coverage)
    low, high = (curve(curves, "p", None, True, name)[:, :, None] for name in ("low", "high"))
    slack = 1e-9 * np.abs(values).max()
    assert (((values >= low - slack) & (values <= high + slack)).mean(axis=2) >= coverage - 1e-9).all()
    ends = [curve(curves, "p", None, True, f"at_{name}_scale") for name in ("smallest", "largest")]
    np.testing.assert_allclose(np.minimum(*ends), values.min(axis=2), rtol=1e-9, atol=slack)
    np.testing.assert_allclose(np.maximum(*ends), values.max(axis=2), rtol=1e-9, atol=slack)


@given(sizes, st.floats(0.2, 0.99), st.sampled_from(["pp", "p+pp"]))
def test_band_of_pairs_holds_most_pairs_of_tokens(size: dict, coverage: float, quantity: str) -> None:
    layer = random_layer(**size)
    query = layer.n_positions - 1
    asserted, compared = plain_terms(layer)
    scales = plain_scales(layer)
    values = compared[:, query, :, None, None] / scales[query][:, None] / scales[:, None, :]
    if quantity == "p+pp":
        values = values + asserted[:, :, None, None] / scales[:, None, :]
    curves = position_curves(layer, [query], coverage=coverage, extremes="both")
    low, high = (curve(curves, quantity, query, True, name)[:, :, None, None] for name in ("low", "high"))
    slack = 1e-9 * np.abs(values).max()
    assert (((values >= low - slack) & (values <= high + slack)).mean(axis=(2, 3)) >= coverage - 1e-9).all()
    smallest = curve(curves, quantity, query, True, "at_smallest_scale")
    places = scales.argmin(axis=1)
    expected = values[:, np.arange(query + 1), places[query], places]
    np.testing.assert_allclose(smallest, expected, rtol=1e-9, atol=slack)


@pytest.mark.parametrize("extremes", ["key", "query"])
def test_only_the_named_scale_is_extreme(extremes: str) -> None:
    """The caption of the paper's Figure 3 varies the key's σ, its code the query's; the other σ is the mean."""
    layer = random_layer(n_positions=11)
    asserted, compared = plain_terms(layer)
    mean, largest = plain_scales(layer).mean(axis=1), plain_scales(layer).max(axis=1)
    of_query, of_key = (mean[8], largest[:9]) if extremes == "key" else (largest[8], mean[:9])
    curves = position_curves(layer, [8], extremes=extremes)
    pp = compared[:, 8, :9] / of_query / of_key
    np.testing.assert_allclose(curve(curves, "pp", 8, True, "at_largest_scale"), pp, rtol=1e-9)
    whole = pp + asserted[:, :9] / of_key
    np.testing.assert_allclose(curve(curves, "p+pp", 8, True, "at_largest_scale"), whole, rtol=1e-9)


@given(sizes)
def test_without_norm_is_with_norm_times_mean_scale(size: dict) -> None:
    layer = random_layer(**size)
    curves = position_curves(layer, [layer.n_positions - 1])
    scale = plain_scales(layer).mean(axis=1)
    divided, undivided = (curve(curves, "p", None, norm, "mean") for norm in (True, False))
    np.testing.assert_allclose(divided * scale, undivided, rtol=1e-9, atol=1e-9 * np.abs(undivided).max())


@given(sizes)
def test_attention_sums_to_one_and_has_no_band(size: dict) -> None:
    layer = random_layer(**size)
    queries = chosen_queries(layer, None)
    curves = position_curves(layer, queries)
    for query in queries:
        for column in ("mean", "at_smallest_scale", "at_largest_scale"):
            np.testing.assert_allclose(curve(curves, "attention", query, True, column).sum(axis=1), 1, rtol=1e-9)
        for column in ("low", "high"):
            assert np.isnan(curve(curves, "attention", query, True, column)).all()


def test_weights_of_one_token_leave_only_that_token() -> None:
    layer = random_layer()
    weights = np.zeros(layer.vocab_size)
    weights[7] = 3.0
    curves = position_curves(layer, [5], token_weights=weights)
    expected = plain_terms(layer)[0] / plain_scales(layer)[:, 7]
    for column in ("mean", "low", "high", "at_smallest_scale", "at_largest_scale"):
        np.testing.assert_allclose(curve(curves, "p", None, True, column), expected, rtol=1e-9)


def test_prediction_is_the_attention_of_the_table() -> None:
    layer = random_layer(n_positions=11)
    curves = position_curves(layer, [3, 10])
    predicted = predicted_attention(layer, [10, 3])
    np.testing.assert_allclose(predicted[0], curve(curves, "attention", 10, True, "mean"), rtol=1e-12)
    np.testing.assert_allclose(predicted[1], curve(curves, "attention", 3, True, "mean"), rtol=1e-12)


def test_a_model_of_four_positions_one_head_and_no_bias() -> None:
    layer = random_layer(n_heads=1, n_positions=4)
    for part in (layer.weights.query_bias, layer.weights.norm_bias):
        part[:] = 0
    curves = position_curves(layer, chosen_queries(layer, None))
    assert sorted({each.query_position for each in curves if each.quantity != "p"}) == [0, 1, 3]
    assert [each.mean.tolist() for each in curves if each.quantity == "p"] == [[[0.0] * 4]] * 2


@pytest.mark.parametrize(
    ("length", "queries"),
    [(1024, [50, 500, 1000]), (448, [21, 218, 437]), (256, [12, 125, 250]), (4, [0, 1, 3]), (1, [0])],
)
def test_query_positions_adapt_to_the_length(length: int, queries: list[int]) -> None:
    assert chosen_queries(random_layer(n_positions=length), None) == queries


@pytest.mark.parametrize(
    ("asked", "said"),
    [([11], "position 11 does not exist; positions go from 0 to 10"), ([-1], "position -1"), ([], "no query position")],
)
def test_positions_that_are_not_there_are_refused(asked: list[int], said: str) -> None:
    with pytest.raises(RangeError, match=said):
        chosen_queries(random_layer(n_positions=11), asked)


def test_default_queries_lie_in_the_trained_range() -> None:
    layer = partly_trained(100, 1024)
    assert chosen_queries(layer, None) == [4, 48, 97]
    assert chosen_queries(layer, None, length=1000) == [4, 48, 97]
    assert chosen_queries(layer, None, length=50) == [2, 24, 48]
    assert chosen_queries(partly_trained(1024, 1024), None) == [50, 500, 1000]

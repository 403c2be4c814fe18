"""Tᵉᵉ over the vocabulary: refused where a token has no σ to divide by, and made for the heads that are asked for."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from detoklens.errors import CheckpointError
from detoklens.measures.frequency import self_assertion
from detoklens.questions.heatmap import Heatmap
from detoklens.questions.partners import Partners
from detoklens.questions.study import Study
from detoklens.scores.layer import Layer
from tests.layers import as_layer, random_first_layer, random_layer, with_rotary_positions


def test_scores_beyond_their_type_are_refused() -> None:
    first_layer = random_first_layer(dtype="float32")
    huge = replace(first_layer, query_weight=first_layer.query_weight * 1e20, key_weight=first_layer.key_weight * 1e20)
    with pytest.raises(CheckpointError, match="too large for float32"):
        as_layer(huge).token_affinity()


def test_a_token_without_scale_is_refused_and_named() -> None:
    first_layer = random_first_layer(epsilon=0.0)
    embeddings = first_layer.token_embeddings.copy()
    embeddings[5] = 0.25
    layer = as_layer(replace(first_layer, token_embeddings=embeddings))
    for centred in (False, True):
        with pytest.raises(CheckpointError, match="norm would divide by the root of 0"):
            layer.token_affinity("bare", centred)
    for scale in ("mean", None):
        assert np.isfinite(layer.token_affinity(scale).scores(np.arange(layer.vocab_size))).all()


@pytest.mark.parametrize("scale", ["mean", None, 3])
@pytest.mark.parametrize("centred", [False, True])
def test_some_heads_are_to_the_bit_those_of_all_heads(scale, centred) -> None:
    layer = random_layer(n_heads=4, dtype="float32")
    some, every = layer.token_affinity(scale, centred, [2, 0]), layer.token_affinity(scale, centred)
    assert np.array_equal(some.query, every.query[[2, 0]])
    assert np.array_equal(some.key, every.key[[2, 0]])


@pytest.mark.parametrize("mean", [None, "vocabulary"])
def test_factors_that_are_not_kept_give_the_same_bits(mean, monkeypatch) -> None:
    first_layer = with_rotary_positions(random_first_layer(n_heads=4, dtype="float32"), 2)
    kept = as_layer(first_layer).token_affinity(mean=mean)
    monkeypatch.setattr("detoklens.scores.layer.MOST_KEPT", 0)
    layer = as_layer(first_layer)
    for _ in range(2):
        found = layer.token_affinity(mean=mean)
        assert np.array_equal(found.query, kept.query)
        assert np.array_equal(found.key, kept.key)
    assert layer.token_factors(0).key is layer.token_factors(1).key
    assert layer.token_factors(0).query is not layer.token_factors(0).query


@pytest.mark.parametrize("mean", [None, "vocabulary"])
def test_all_heads_take_little_more_than_one_copy_of_their_factors(mean, monkeypatch) -> None:
    monkeypatch.setattr("detoklens.scores.layer.MOST_KEPT", 0)
    first_layer = with_rotary_positions(random_first_layer(n_heads=16, d_head=8, vocab_size=6000, dtype="float32"), 8)
    peak = peak_of(lambda layer, _: layer.token_affinity(mean=mean), as_layer(first_layer), ())
    queries, keys, for_a_head = 16, 8, 6
    assert peak < (queries + 2 * keys + for_a_head) * 6000 * 8 * 4  # keys are kept as well


ASKED = {
    "affinity": lambda layer, heads: layer.token_affinity(centred=True, heads=heads),
    "partners": lambda layer, heads: Study(layer).ask(Partners([1, 5], heads=heads)),
    "heatmap": lambda layer, heads: Study(layer).ask(Heatmap(tokens=5, heads=heads)),
    "self assertion": lambda layer, heads: self_assertion(layer, heads),
}


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_memory_follows_the_heads_that_are_asked_for(ask) -> None:
    """Two heads of 32 take an eighth at most, where the least that they could take is a sixteenth."""
    first_layer = random_first_layer(n_heads=32, d_head=8, vocab_size=6000, dtype="float32")
    ask(as_layer(first_layer), [0])  # imports what it needs
    assert peak_of(ask, as_layer(first_layer), [3, 30]) < peak_of(ask, as_layer(first_layer), range(32)) / 8


def peak_of(ask, layer: Layer, heads: Sequence[int]) -> int:
    """Bytes at the highest point, without what every head needs: σ and the folded weights."""
    layer.token_scale()
    assert layer.folded
    tracemalloc.start()
    ask(layer, heads)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak

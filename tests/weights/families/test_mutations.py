"""What is easily got wrong in a family makes the comparison with the real model fail: each is done here on purpose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import detoklens
from detoklens.scores import factors as rotation
from detoklens.scores import terms
from detoklens.weights import families, reader
from tests.weights.families.tiny import IDS, real, tiny

LLAMA = {
    "hidden_size": 20,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "intermediate_size": 11,
    "vocab_size": 23,
    "num_hidden_layers": 1,
    "max_position_embeddings": 30,
    "rms_norm_eps": 0.05,
}
OPT = {
    "hidden_size": 21,
    "num_attention_heads": 3,
    "intermediate_size": 19,
    "vocab_size": 23,
    "num_hidden_layers": 1,
    "max_position_embeddings": 30,
}
BLOOM = {"hidden_size": 18, "n_head": 3, "vocab_size": 23, "n_layer": 1}


def with_spec(monkeypatch: pytest.MonkeyPatch, model_type: str, **changes: Any) -> None:
    monkeypatch.setitem(families.SPEC_OF, model_type, replace(families.SPEC_OF[model_type], **changes))


def without_added_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    with_spec(monkeypatch, "gemma", added_gain=0.0)


def with_neighbouring_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    right = rotation._turned

    def turned(vectors: np.ndarray, angles: np.ndarray, factor: float) -> np.ndarray:
        width = vectors.shape[-1]
        order = np.concatenate([np.arange(0, width, 2), np.arange(1, width, 2)])
        return right(vectors[..., order], angles, factor)

    monkeypatch.setattr(rotation, "_turned", turned)


def on_the_wrong_key_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terms, "for_each_head", lambda shared, layer: np.concatenate([shared] * layer.heads_per_key))


def with_another_epsilon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "read_epsilon", lambda *_: 1e-5)


def without_embedding_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_transform_rows", lambda table, _: table)


def with_slopes_in_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    right = reader.alibi_slopes
    monkeypatch.setattr(reader, "alibi_slopes", lambda heads: np.sort(right(heads))[::-1])


def with_another_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    with_spec(monkeypatch, "bloom", projections=replace(families.SPEC_OF["bloom"].projections, layout="stacked"))


def with_positions_one_row_off(monkeypatch: pytest.MonkeyPatch) -> None:
    with_spec(monkeypatch, "opt", positions=replace(families.SPEC_OF["opt"].positions, first_row=1))


def largest_difference(model: Any) -> float:
    layer = detoklens.load(model, dtype="float64")
    theirs = real(model, layer, IDS, "float64")
    attention = np.abs(layer.terms(IDS).attention() - theirs.attention).max()
    return float(max(attention, np.abs(layer.block_output(IDS) - theirs.block).max()))


@pytest.mark.parametrize(
    ("family", "settings", "mutate"),
    [
        ("gemma", LLAMA, without_added_gain),
        ("llama", LLAMA, with_neighbouring_pairs),
        ("llama", LLAMA, on_the_wrong_key_group),
        ("llama", LLAMA, with_another_epsilon),
        ("gemma2", LLAMA, without_embedding_scale),
        ("biogpt", OPT, without_embedding_scale),
        ("bloom", BLOOM, with_slopes_in_another_order),
        ("bloom", BLOOM, with_another_layout),
        ("opt", {**OPT, "ffn_dim": 19}, with_positions_one_row_off),
    ],
    ids=lambda value: getattr(value, "__name__", value) if not isinstance(value, dict) else "",
)
def test_the_comparison_sees_it(
    family: str, settings: dict[str, Any], mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny(family, **settings)
    assert largest_difference(model) < 1e-10
    mutate(monkeypatch)
    assert largest_difference(model) > 1e-3

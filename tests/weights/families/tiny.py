"""Tiny random models of transformers' own, in which every part matters, and what each must agree in with ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModel

import detoklens
from detoklens.model.verify import RealAttention, run_real_layer
from detoklens.scores.layer import Layer

IDS = [3, 1, 4, 1, 5, 9, 2, 6, 5]
TOLERANCES = (("float64", 1e-10), ("float32", 1e-5))


def tiny(model_type: str, seed: int = 0, **settings: Any) -> Any:
    """A model of this type in which gains are not 1, biases not 0, and no two numbers alike."""
    torch.manual_seed(seed)
    model = AutoModel.from_config(AutoConfig.for_model(model_type, **settings)).eval()
    with torch.no_grad():
        for name, values in model.named_parameters():
            is_gain = values.ndim == 1 and name.endswith("weight")
            values.copy_(torch.randn_like(values) * 0.3 + (0.8 if is_gain else 0.05))
    return model


def real(model: Any | Path, layer: Layer, ids: list[int], dtype: str) -> RealAttention:
    return run_real_layer(model, layer.checkpoint.config, ids, dtype)


def assert_equals_real(model: Any | Path, ids: list[int] = IDS, block: bool = True) -> Layer:
    """Attention, outputs and the block are the real model's in both number types; the layer in float64."""
    for dtype, tolerance in reversed(TOLERANCES):
        layer = detoklens.load(model, dtype=dtype)
        theirs = real(model, layer, ids, dtype)
        assert_close(layer.terms(ids).attention(), theirs.attention, tolerance)
        assert_close(layer.head_outputs(ids), theirs.head_outputs, tolerance)
        assert_close(layer.attention_output(ids), theirs.output, tolerance)
        if block:
            assert_close(layer.block_output(ids), theirs.block, tolerance)
    assert_terms_add_up(layer, theirs, ids)
    return layer


def assert_close(ours: np.ndarray, theirs: np.ndarray, tolerance: float) -> None:
    assert ours.dtype == theirs.dtype
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * max(1.0, float(np.abs(theirs).max())))


def assert_terms_add_up(layer: Layer, theirs: RealAttention, ids: list[int]) -> None:
    """However the score is split, the attention is the same, and each term has a meaning."""
    weights = np.random.default_rng(1).integers(0, 9, layer.vocab_size)
    for mean in (None,) if layer.positions == "learned" else (None, "vocabulary", weights):
        terms = layer.terms(ids, mean=mean)
        assert_close(terms.attention(), theirs.attention, 1e-10)
        assert set(terms.names) == set(terms.meanings) <= set(layer.term_meanings)
        for name in terms.names:
            np.testing.assert_allclose(terms.without(name) + terms.full(name), terms.total(), atol=1e-10)
        if mean is not None:
            assert terms.names == tuple(layer.term_meanings)
            assert_offsets_agree(layer, ids, mean)


def assert_offsets_agree(layer: Layer, ids: list[int], mean: Any) -> None:
    """The vocabulary's factors at an offset, and the kernel, are the text's terms at that offset."""
    terms, last = layer.terms(ids, mean=mean), len(ids) - 1
    np.testing.assert_allclose(layer.kernel([0, 3, last], mean=mean)[:, 1], terms.full("p")[:, 5, 2], atol=1e-10)
    for key in (0, 4, last):
        asserted = layer.token_assertion(offset=last - key, mean=mean)[:, ids[key]]
        np.testing.assert_allclose(asserted, terms.full("e")[:, last, key], atol=1e-10)
        at_offset = layer.affinity([ids[last]], offset=last - key, mean=mean)[:, 0, ids[key]]
        np.testing.assert_allclose(at_offset, terms["ee"][:, last, key], atol=1e-10)


def saved(model: Any, folder: Path) -> Path:
    model.save_pretrained(folder)
    return folder

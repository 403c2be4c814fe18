"""BLOOM and MPT: equal to transformers for any number of heads."""

from __future__ import annotations

import json

import numpy as np
import pytest

import detoklens
from detoklens.errors import UnsupportedModelError
from detoklens.weights.reader import alibi_slopes
from tests.weights.families.tiny import IDS, assert_equals_real, saved, tiny


def bloom(heads: int, **settings):
    return tiny(
        "bloom", hidden_size=6 * heads, n_head=heads, vocab_size=23, n_layer=2, layer_norm_epsilon=0.02, **settings
    )


def mpt(heads: int, **attention):
    sizes = {"d_model": 6 * heads, "n_heads": heads, "vocab_size": 23, "n_layers": 2, "max_seq_len": 30}
    return tiny("mpt", **sizes, layer_norm_epsilon=0.02, attn_config=attention)


@pytest.mark.parametrize("heads", [1, 2, 3, 5, 8, 13])
def test_bloom_is_exact(tmp_path, heads):
    layer = assert_equals_real(saved(bloom(heads), tmp_path))
    assert (layer.positions, layer.n_positions, layer.has_biases) == ("alibi", 2048, True)
    assert layer.terms(IDS).names == ("ee", "e", "p")


@pytest.mark.parametrize("heads", [1, 2, 3, 5, 8, 13])
def test_mpt_is_exact(tmp_path, heads):
    assert_equals_real(saved(mpt(heads, softmax_scale=0.3), tmp_path))


def test_slopes_are_the_published_ones():
    np.testing.assert_allclose(alibi_slopes(8), [2.0**-n for n in range(1, 9)])
    np.testing.assert_allclose(alibi_slopes(3), [2.0**-4, 2.0**-8, 2.0**-2])
    np.testing.assert_allclose(alibi_slopes(6), [0.25, 2.0**-4, 2.0**-6, 2.0**-8, 0.5, 2.0**-3])


def test_the_kernel_is_the_given_slope():
    layer = detoklens.load(mpt(3), dtype="float64")
    np.testing.assert_allclose(
        layer.kernel([0, 1, 5]) * layer.attention_scale, -np.outer(layer.weights.alibi_slopes, [0, 1, 5]), atol=1e-12
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"clip_qkv": 6.0},
        {"qk_ln": True},
        {"alibi": False},
        {"attn_type": "multiquery_attention"},
        {"alibi_bias_max": 16},
    ],
    ids=str,
)
def test_other_attention_of_mpt_is_refused_by_name(tmp_path, settings):
    folder = saved(mpt(3), tmp_path)
    config = json.loads((folder / "config.json").read_text())
    config["attn_config"] |= settings
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedModelError, match=f"attn_config.{next(iter(settings))} = "):
        detoklens.load(folder)


def test_a_block_that_goes_on_with_normed_vectors_is_refused():
    layer = detoklens.load(bloom(3, apply_residual_connection_post_layernorm=True))
    with pytest.raises(UnsupportedModelError, match="apply_residual_connection_post_layernorm"):
        layer.block_output(IDS)

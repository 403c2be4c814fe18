"""Llama, Mistral: equal to transformers, with every kind of RoPE, shared keys and odd sizes."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import detoklens
from detoklens.errors import CheckpointError, RangeError, UnsupportedModelError
from detoklens.model.verify import default_token_ids, verify
from detoklens.scores.layer import Layer
from tests.weights.families.tiny import IDS, assert_equals_real, real, saved, tiny

SIZES = {
    "hidden_size": 30,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 10,
    "intermediate_size": 17,
    "vocab_size": 29,
    "num_hidden_layers": 2,
    "max_position_embeddings": 40,
    "rms_norm_eps": 0.01,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
YARN = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 20, "beta_fast": 3.0}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"num_key_value_heads": 6, "rope_theta": 500.0},
        {"num_key_value_heads": 1, "head_dim": 4},
        {"attention_bias": True, "mlp_bias": True, "hidden_act": "gelu"},
        {"rope_scaling": {"type": "linear", "factor": 3.0}},
        {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}},
        {"rope_scaling": LLAMA3, "rope_theta": 50.0},
        {"rope_scaling": YARN},
        {"rope_scaling": YARN | {"truncate": False, "mscale": 1.5, "mscale_all_dim": 0.5}, "rope_theta": 100.0},
        {"rope_scaling": YARN | {"attention_factor": 1.3}},
    ],
    ids=str,
)
def test_llama_is_exact(settings):
    assert_equals_real(tiny("llama", **SIZES | settings))


def test_a_folder_is_read_as_the_model_in_memory(tmp_path):
    model = tiny("llama", **SIZES, rope_scaling=LLAMA3)
    layer = assert_equals_real(saved(model, tmp_path))
    assert layer.fingerprint == detoklens.load(model).fingerprint
    assert (layer.n_heads, layer.d_head, layer.d_model, layer.vocab_size, layer.n_positions) == (6, 10, 30, 29, 40)
    assert (layer.positions, layer.is_causal, layer.has_biases) == ("rotary", True, False)


def test_settings_as_older_configs_have_them_mean_the_same(tmp_path):
    model = tiny("llama", **SIZES, rope_scaling=LLAMA3, rope_theta=50.0)
    folder = saved(model, tmp_path)
    config = json.loads((folder / "config.json").read_text())
    rope = config.pop("rope_parameters")
    config |= {"rope_theta": rope.pop("rope_theta"), "rope_scaling": rope}
    (folder / "config.json").write_text(json.dumps(config))
    assert detoklens.load(folder).fingerprint == detoklens.load(model).fingerprint


@pytest.mark.parametrize("window", [None, 4])
def test_mistral_is_exact(window):
    layer = assert_equals_real(tiny("mistral", **SIZES, sliding_window=window))
    seen = (layer.terms(IDS).attention() > 0).sum(axis=2)
    assert seen.max() == (window or len(IDS))


def test_the_attention_of_a_mixture_of_experts_is_exact(tmp_path):
    model = tiny("mixtral", **SIZES, sliding_window=4, num_local_experts=3)
    layer = assert_equals_real(saved(model, tmp_path), block=False)
    with pytest.raises(UnsupportedModelError, match="mixtral: the MLP is a mixture of experts"):
        layer.block_output(IDS)


def test_dropping_the_key_bias_is_wrong_with_rotary_positions():
    """It cancels where positions are added; here it is turned by the key's place."""
    model = tiny("llama", **SIZES, attention_bias=True)
    layer = detoklens.load(model, dtype="float64")
    without = Layer(
        replace(layer.checkpoint, first_layer=replace(layer.weights, key_bias=np.zeros_like(layer.weights.key_bias)))
    )
    theirs = real(model, layer, IDS, "float64").attention
    assert np.abs(layer.terms(IDS).attention() - theirs).max() < 1e-10
    assert np.abs(without.terms(IDS).attention() - theirs).max() > 1e-2


def test_heads_that_share_keys_share_them_in_memory():
    layer = detoklens.load(tiny("llama", **SIZES))
    assert layer.token_factors(0).key is layer.token_factors(2).key
    assert layer.token_factors(0).key is not layer.token_factors(3).key
    affinity = layer.token_affinity()
    assert affinity.shared_key.shape == (2, 29, 10)
    assert affinity.key.shape == (6, 29, 10)
    assert np.shares_memory(affinity.key_of(0), affinity.key_of(2))
    keys = [key for _, key in affinity.heads()]
    assert np.shares_memory(keys[0], keys[2])
    assert not np.shares_memory(keys[0], keys[3])
    assert affinity.single().shared_key.shape == affinity.shared_key.shape
    some, rows = affinity.of_heads([5, 1]), np.array([7])
    np.testing.assert_array_equal(some.scores(rows), affinity.scores(rows)[[5, 1]])
    np.testing.assert_allclose(layer.token_affinity(heads=[5, 1]).scores(rows), some.scores(rows), atol=1e-6)
    np.testing.assert_array_equal(affinity.key[4], affinity.key_of(4))


def test_without_biases_the_plain_score_is_one_term():
    layer = detoklens.load(tiny("llama", **SIZES))
    assert layer.terms(IDS).names == ("ee",)
    assert layer.terms(IDS, mean="vocabulary").names == ("ee", "e", "ep", "p")
    assert layer.term_meanings["p"] == "position kernel"


def test_an_even_mean_leaves_nothing_in_common():
    layer = detoklens.load(tiny("llama", **SIZES), dtype="float64")
    affinity = layer.token_affinity(mean="vocabulary", offset=2)
    np.testing.assert_allclose(affinity.query.mean(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(affinity.key.mean(axis=1), 0, atol=1e-12)


def test_a_mean_by_frequency_is_that_of_the_counts():
    layer, counted = detoklens.load(tiny("llama", **SIZES), dtype="float64"), np.arange(29) % 5
    known = layer.with_frequencies(counted)
    for name in ("ee", "e", "ep", "p"):
        theirs = layer.terms(IDS, mean=counted)[name]
        np.testing.assert_array_equal(known.terms(IDS, mean="frequency")[name], theirs)
        assert np.abs(theirs - layer.terms(IDS, mean="vocabulary")[name]).max() > 1e-3
    np.testing.assert_array_equal(known.kernel([1, 2], mean="frequency"), layer.kernel([1, 2], mean=counted))
    np.testing.assert_array_equal(
        known.affinity([3], offset=2, mean="frequency"), layer.affinity([3], offset=2, mean=counted)
    )
    assert layer.frequencies is None
    assert known.token_factors(0).query is layer.token_factors(0).query


def test_the_block_is_computed_from_the_whole_checkpoint_alone(tmp_path):
    from safetensors.numpy import load_file, save_file

    folder = saved(tiny("llama", **SIZES), tmp_path)
    tensors = load_file(folder / "model.safetensors")
    save_file({name: v for name, v in tensors.items() if ".mlp." not in name}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"'layers.0.mlp.up_proj.weight' is missing"):
        detoklens.load(folder).block_output(IDS)
    kept = {name: v for name, v in tensors.items() if ".mlp." not in name and "post_attention" not in name}
    save_file(kept, folder / "model.safetensors")
    layer = detoklens.load(folder)
    with pytest.raises(CheckpointError, match="the tensors of the first block's MLP are missing"):
        layer.block_output(IDS)
    assert layer.attention_output(IDS).shape == (len(IDS), 30)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"rope_scaling": {"rope_type": "longrope"}}, UnsupportedModelError, "RoPE type 'longrope' is not computed"),
        ({"rope_scaling": {"type": "banana"}}, UnsupportedModelError, "RoPE type 'banana' is not computed"),
        ({"rope_scaling": {"type": "linear", "factor": 0}}, CheckpointError, "factor must be a number above 0, not 0"),
        ({"rope_scaling": {"type": "linear", "factor": 2, "depth": 3}}, UnsupportedModelError, "setting 'depth' = 3"),
        ({"rope_scaling": [1]}, CheckpointError, "rope_scaling must be an object"),
        ({"rope_scaling": {"rope_type": ["x"]}}, UnsupportedModelError, r"RoPE type \['x'\] is not computed"),
        ({"head_dim": 10**30}, CheckpointError, "head_dim must be a whole number above 0"),
        ({"head_dim": 10**9}, CheckpointError, "no head has 1,000,000,000 features"),
        ({"num_key_value_heads": 4}, CheckpointError, "4 key heads do not divide the 6 heads"),
        ({"attention_bias": True}, CheckpointError, "q_proj.bias' is missing"),
        ({"head_dim": 9}, UnsupportedModelError, "9 rotary coordinates can't be split into pairs"),
        ({"head_dim": 8}, CheckpointError, "the config asks for"),
        ({"qk_norm": True}, UnsupportedModelError, "qk_norm = True may change the first layer"),
        ({"rms_norm_eps": -1}, CheckpointError, "rms_norm_eps must be a number of at least 0, not -1"),
    ],
    ids=str,
)
def test_what_is_not_computed_is_refused_by_name(tmp_path, settings, error, message):
    folder = saved(tiny("llama", **SIZES), tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | settings))
    with pytest.raises(error, match=message):
        detoklens.load(folder)


def test_offsets_and_means_that_make_no_sense_are_refused():
    layer = detoklens.load(tiny("llama", **SIZES))
    for offset in (-1, 40):
        with pytest.raises(RangeError, match=f"offset {offset} does not exist; offsets go from 0 to 39"):
            layer.token_affinity(offset=offset)
        with pytest.raises(RangeError, match="does not exist"):
            layer.kernel([offset])
    for mean in ("often", np.ones(3)):
        with pytest.raises(RangeError, match="is neither 'vocabulary' nor 'frequency' nor an array of 29 weights"):
            layer.terms(IDS, mean=mean)
    for ask in (lambda: layer.terms(IDS, mean="frequency"), lambda: layer.token_affinity(mean="frequency")):
        with pytest.raises(RangeError, match="needs token frequencies: use the layer of a study with"):
            ask()
    with pytest.raises(RangeError, match="at least 0, and not all 0"):
        layer.terms(IDS, mean=np.zeros(29))


def test_real_weights_agree(stories_folder):
    layer = detoklens.load(stories_folder)
    frame = verify(layer, default_token_ids(layer, None, 128))
    assert frame["passed"].all(), frame
    assert layer.block_output([9038, 2501]).shape == (2, 288)

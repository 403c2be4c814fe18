"""Reading checkpoints: the layouts people have, only the tensors that are needed, and configs that fit them."""

from __future__ import annotations

import json
import struct
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from safetensors.torch import save_file as save_torch_file
from transformers import GPT2Config, GPT2LMHeadModel

import detoklens
from detoklens.errors import CheckpointError, DetokLensError, RangeError, UnsupportedModelError
from detoklens.weights import sources
from detoklens.weights.blocks import config_fingerprint
from detoklens.weights.sources import SafetensorsFolder
from tests.layers import assert_same_layer, gpt2_config, gpt2_tensors, random_first_layer, write_gpt2, write_tokenizer
from tests.real_gpt2 import real_gpt2


@pytest.mark.parametrize("prefix", ["transformer.", ""])
def test_a_folder_is_read_with_and_without_prefix(tmp_path, prefix):
    first_layer = random_first_layer()
    layer = detoklens.load(write_gpt2(tmp_path, first_layer, prefix), dtype="float64")
    assert_same_layer(layer.weights, first_layer)
    assert (layer.n_heads, layer.d_head, layer.d_model, layer.vocab_size, layer.n_positions) == (3, 4, 12, 23, 11)


@pytest.mark.parametrize("stored", ["float64", "float32", "float16", "bfloat16"])
def test_every_stored_type_is_read_exactly(tmp_path, stored):
    tensors = {
        name: torch.from_numpy(values).to(getattr(torch, stored))
        for name, values in gpt2_tensors(random_first_layer()).items()
    }
    write_gpt2(tmp_path, random_first_layer())
    save_torch_file(tensors, tmp_path / "model.safetensors")
    layer = detoklens.load(tmp_path, dtype="float64")
    expected = tensors["transformer.wte.weight"].double().numpy()
    np.testing.assert_array_equal(layer.weights.token_embeddings, expected)
    assert layer.weights.token_embeddings.dtype == np.float64
    assert detoklens.load(tmp_path).weights.token_embeddings.dtype == np.float32


def test_tensors_larger_than_a_block_are_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "BLOCK_BYTES", 40)
    first_layer = random_first_layer()
    assert_same_layer(detoklens.load(write_gpt2(tmp_path, first_layer), dtype="float64").weights, first_layer)


def test_shards_are_read_through_their_index(tmp_path):
    first_layer = random_first_layer()
    write_gpt2(tmp_path, first_layer)
    tensors = load_file(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    names = sorted(tensors)
    shards = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for shard, members in shards.items():
        save_file({name: tensors[name] for name in members}, tmp_path / shard)
    weight_map = {name: shard for shard, members in shards.items() for name in members}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert_same_layer(detoklens.load(tmp_path, dtype="float64").weights, first_layer)

    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(
        CheckpointError, match=r"shard 'model-00002-of-00002.safetensors' named by the index is missing"
    ):
        detoklens.load(tmp_path)


@pytest.mark.parametrize("shard", ["../secret.safetensors", "/etc/passwd", "a/b.safetensors", "weights.bin"])
def test_an_index_can_not_lead_elsewhere(tmp_path, shard):
    write_gpt2(tmp_path, random_first_layer())
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"wte.weight": shard}}))
    with pytest.raises(CheckpointError, match=r"is not a .safetensors file next to the index"):
        detoklens.load(tmp_path)


def test_what_transformers_writes_is_what_we_read(tmp_path):
    """A whole language model of three layers saved by transformers itself; only the first layer's tensors are used."""
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_embd=20, n_head=5, n_layer=3, n_positions=9, vocab_size=31))
    model.save_pretrained(tmp_path)
    on_disk, in_memory = detoklens.load(tmp_path), detoklens.load(model)
    assert_same_layer(on_disk.weights, in_memory.weights)
    np.testing.assert_array_equal(on_disk.weights.token_embeddings, model.transformer.wte.weight.detach().numpy())
    assert on_disk.fingerprint == in_memory.fingerprint == detoklens.load(tmp_path, dtype="float64").fingerprint


def test_a_model_in_memory_in_bfloat16_is_read(tmp_path):
    first_layer = random_first_layer(dtype="float32")
    layer = detoklens.load(real_gpt2(first_layer, torch.bfloat16))
    np.testing.assert_allclose(layer.weights.token_embeddings, first_layer.token_embeddings, rtol=1e-2)


def test_only_needed_tensors_are_read(tmp_path, monkeypatch):
    first_layer = random_first_layer()
    tensors = gpt2_tensors(first_layer) | {"transformer.h.1.attn.c_attn.weight": np.full((3, 3), np.nan)}
    write_gpt2(tmp_path, first_layer)
    save_file(tensors, tmp_path / "model.safetensors")
    read = []
    original = SafetensorsFolder.read
    monkeypatch.setattr(
        SafetensorsFolder, "read", lambda self, name, dtype: (read.append(name), original(self, name, dtype))[1]
    )
    detoklens.load(tmp_path)
    assert sorted(read) == sorted(gpt2_tensors(first_layer))


def test_rows_beyond_the_tokenizer_are_trimmed_and_that_is_said(tmp_path):
    write_gpt2(tmp_path, random_first_layer(vocab_size=300))
    write_tokenizer(tmp_path, ["hello hello"], vocab_size=260)
    layer = detoklens.load(tmp_path)
    size = layer.vocabulary.size
    assert layer.vocab_size == size < 300
    assert layer.notes == (f"{300 - size} embedding rows beyond the tokenizer's {size} tokens are left out",)


def test_without_a_tokenizer_everything_works_by_id(tmp_path):
    layer = detoklens.load(write_gpt2(tmp_path, random_first_layer()))
    assert layer.token(7) == "<id 7>"
    assert "by id only" in layer.notes[0]
    assert layer.affinity([7]).shape == (3, 1, 23)
    with pytest.raises(DetokLensError, match="has no tokenizer; pass token ids"):
        layer.token_id("a")


def test_the_sizes_of_the_config_must_fit_the_weights(tmp_path):
    write_gpt2(tmp_path, random_first_layer(), n_embd=15)
    with pytest.raises(CheckpointError, match="the config asks for"):
        detoklens.load(tmp_path)
    write_gpt2(tmp_path, random_first_layer(), n_head=5)
    with pytest.raises(CheckpointError, match="5 heads do not divide the width 12"):
        detoklens.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"), [("n_positions", 10), ("vocab_size", 24), ("n_positions", "11"), ("vocab_size", True)]
)
def test_the_rows_of_the_embeddings_must_be_those_of_the_config(tmp_path, name, value):
    with pytest.raises(CheckpointError, match=r"the config asks for|must be a whole number above 0"):
        detoklens.load(write_gpt2(tmp_path, random_first_layer(), **{name: value}))


@pytest.mark.parametrize("name", ["transformer.wte.weight", "transformer.wpe.weight"])
def test_embeddings_without_rows_are_refused(tmp_path, name):
    write_gpt2(tmp_path, random_first_layer(), n_positions=None, vocab_size=None)
    tensors = load_file(tmp_path / "model.safetensors") | {name: np.zeros((0, 12), np.float32)}
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"has shape \(0, 12\), but the config asks for \('any', 12\)"):
        detoklens.load(tmp_path)


def test_a_wrong_shape_is_refused_before_its_bytes_are_read(tmp_path):
    """An empty tensor may claim sizes that no array has."""
    write_gpt2(tmp_path, random_first_layer())
    entry = {"dtype": "F32", "shape": [0, 10**30], "data_offsets": [0, 0]}
    header = json.dumps({"transformer.wte.weight": entry, "transformer.h.0.attn.c_attn.weight": entry}).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(CheckpointError, match="but the config asks for"):
        detoklens.load(tmp_path)


def test_numbers_too_large_for_the_type_are_one_line(tmp_path):
    """No warning of numpy's beside it: warnings are errors here."""
    first_layer = random_first_layer()
    write_gpt2(tmp_path, replace(first_layer, token_embeddings=first_layer.token_embeddings * 1e300))
    with pytest.raises(CheckpointError, match="holds NaN or Inf"):
        detoklens.load(tmp_path)


def test_files_that_can_not_be_opened_are_one_line(tmp_path):
    with pytest.raises(CheckpointError, match="File name too long; check the model's name"):
        detoklens.load("a" * 5000)
    with pytest.raises(CheckpointError, match="File name too long"):
        detoklens.load_vocabulary("a" * 5000)
    write_gpt2(tmp_path, random_first_layer())
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "model.safetensors.index.json").write_text("[" * 200_000)
    with pytest.raises(CheckpointError, match="not valid JSON"):
        detoklens.load(tmp_path)


@pytest.mark.parametrize("dtype", ["float16", "int32", "banana"])
def test_other_number_types_are_refused(tmp_path, dtype):
    with pytest.raises(RangeError, match=f"dtype '{dtype}' is not supported; accepted are float32 and float64"):
        detoklens.load(write_gpt2(tmp_path, random_first_layer()), dtype=dtype)


@pytest.mark.parametrize(
    "harmless",
    [
        {"scale_attn_by_inverse_layer_idx": True},
        {"reorder_and_upcast_attn": True},
        {"add_cross_attention": True},
        {"attn_pdrop": 0.3},
        {"task_specific_params": {"text-generation": {"max_length": 50}}},
        {"n_ctx": 11},
    ],
)
def test_attributes_that_leave_layer_0_as_it_is_are_accepted(tmp_path, harmless):
    first_layer = random_first_layer()
    assert_same_layer(
        detoklens.load(write_gpt2(tmp_path, first_layer, **harmless), dtype="float64").weights, first_layer
    )


@pytest.mark.parametrize("attribute", ["scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn"])
def test_accepted_attributes_really_leave_the_real_model_as_it_is(attribute):
    from tests.real_gpt2 import real_attention_and_output

    first_layer, ids = random_first_layer(dtype="float32"), [3, 1, 4, 1, 5]
    plain, _ = real_attention_and_output(real_gpt2(first_layer, torch.float32), ids)
    with_it, _ = real_attention_and_output(real_gpt2(first_layer, torch.float32, **{attribute: True}), ids)
    np.testing.assert_allclose(with_it, plain, atol=1e-5)


def test_unscaled_attention_is_handled(tmp_path):
    assert detoklens.load(write_gpt2(tmp_path, random_first_layer(), scale_attn_weights=False)).attention_scale == 1.0
    with pytest.raises(CheckpointError, match="scale_attn_weights must be true or false, not 'false'"):
        detoklens.load(write_gpt2(tmp_path, random_first_layer(), scale_attn_weights="false"))
    assert detoklens.load(write_gpt2(tmp_path, random_first_layer())).attention_scale == 0.5


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rope_scaling", {"factor": 2}),
        ("quantization_config", {"bits": 4}),
        ("attention_window", 128),
        ("qk_norm", True),
        ("embedding_multiplier", 12.0),
    ],
)
def test_attributes_that_may_change_the_layer_are_refused_by_name_and_value(tmp_path, name, value):
    with pytest.raises(UnsupportedModelError, match=f"{name} = "):
        detoklens.load(write_gpt2(tmp_path, random_first_layer(), **{name: value}))


def test_epsilon_comes_from_the_config(tmp_path):
    assert detoklens.load(write_gpt2(tmp_path, random_first_layer(epsilon=1e12))).weights.norm_epsilon == 1e12
    for bad in ("small", True, None, -1, float("nan"), float("inf"), 1e300, 10**400):
        write_gpt2(tmp_path, random_first_layer(), layer_norm_epsilon=bad)
        with pytest.raises(CheckpointError, match="layer_norm_epsilon must be a number of at least 0, not "):
            detoklens.load(tmp_path)


def test_an_unsupported_type_is_named_with_the_supported_ones(tmp_path):
    write_gpt2(tmp_path, random_first_layer(), model_type="unheard_of")
    with pytest.raises(UnsupportedModelError, match="'unheard_of' is not supported; supported are: gpt2, "):
        detoklens.load(tmp_path)


def test_a_folder_that_lacks_parts_says_which(tmp_path):
    with pytest.raises(CheckpointError, match=r"no config\.json"):
        detoklens.load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(gpt2_config(random_first_layer())))
    with pytest.raises(CheckpointError, match=r"no model\.safetensors"):
        detoklens.load(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match="not valid JSON"):
        detoklens.load(tmp_path)
    with pytest.raises(CheckpointError, match="no such folder"):
        detoklens.load(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match="is a file; pass the folder"):
        detoklens.load(tmp_path / "config.json")


def test_whisper_is_read_from_real_weights(whisper_folder):
    layer = detoklens.load(whisper_folder)
    assert (layer.n_heads, layer.d_head, layer.vocab_size, layer.n_positions) == (6, 64, 50257, 448)
    assert layer.notes == ("1607 embedding rows beyond the tokenizer's 50257 tokens are left out",)
    assert not layer.weights.key_bias.any()
    config = json.loads((whisper_folder / "config.json").read_text())
    assert config["scale_embedding"] is False


def test_a_config_that_changed_since_it_was_read_counts_as_another(tmp_path):
    folder = write_gpt2(tmp_path / "model", random_first_layer())
    checkpoint = detoklens.load(folder).checkpoint
    before = config_fingerprint(checkpoint, 1)
    assert config_fingerprint(detoklens.load(folder).checkpoint, 1) == before
    write_gpt2(folder, random_first_layer(), activation_function="relu")
    assert config_fingerprint(checkpoint, 1) != before
